"""How values look on a page."""

import pytest

from runwatch_server.page.filters import told


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kind": "lower_lr", "scale": 0.5}, "lower lr, scale 0.5"),
        ({"kind": "rollback", "before_step": 0, "to_step": None}, "rollback, before step 0"),
        (["admin", "read"], "admin, read"),
        (False, "no"),
        ("<b>", "<b>"),
        (3, "3"),
    ],
)
def test_what_the_audit_kept_is_told_without_brackets(value: object, words: str) -> None:
    assert told(value) == words
