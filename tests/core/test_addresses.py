"""What is shown of an address: nothing that may be a password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.addresses import place_of

SECRET = "S3CRET"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"https://me:{SECRET}@am:9093/x", "https://am:9093/x"),
        (f"postgresql://u:{SECRET}@[::1]:5432/x?password={SECRET}", "postgresql://[::1]:5432/x"),
        (f"postgresql://u:{SECRET}@h1:1,h2:2/x#{SECRET}", "postgresql://h1:1,h2:2/x"),
        (f"postgresql://u:{SECRET}@/x", "postgresql:///x"),
        ("postgresql:///x", "postgresql:///x"),
        ("s3://bucket/a/prefix", "s3://bucket/a/prefix"),
        (f"u:{SECRET}@h/x", "a text of 12 characters without '://'"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(address: str, shown: str) -> None:
    assert place_of(address) == shown


@pytest.mark.parametrize("where", ["@h", "@h/x", "@h:1/x?a=b"])
@given(before=st.text(), after=st.text())
def test_no_sign_within_a_password_shows_a_part_of_it(where: str, before: str, after: str) -> None:
    """A sign that is not escaped may end the place of a password for those who parse it."""
    shown = place_of(f"postgresql://u:{before}{SECRET}{after}{where}")

    assert SECRET not in shown
