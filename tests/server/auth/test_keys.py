"""Keys as text: parsed, refused, and never kept in clear."""

import pytest

from runwatch_server.auth.keys import KeyScope, Principal, parse_key
from runwatch_server.auth.service import make_key
from runwatch_server.errors import ForbiddenError, UnauthenticatedError

NEW = make_key(
    "a", scopes={KeyScope.READ}, project="p", expires_at=20.0, created_by="test", now=10.0
)


def test_a_key_s_text_gives_its_id_and_secret_back() -> None:
    key_id, secret = parse_key(NEW.text)

    assert key_id == NEW.key.id
    NEW.key.check(secret, now=19.9)


def test_the_secret_is_not_kept() -> None:
    _, secret = parse_key(NEW.text)

    assert secret not in repr(NEW.key)


@pytest.mark.parametrize(
    "text",
    ["", "runwatch_", NEW.text[:-1], NEW.text + "0"],
    ids=["empty", "only the prefix", "a letter less", "a letter more"],
)
def test_a_mistyped_key_is_told_from_an_unknown_one(text: str) -> None:
    with pytest.raises(UnauthenticatedError, match="mistyped"):
        parse_key(text)


def test_one_changed_letter_is_seen_by_the_checksum() -> None:
    letter = "A" if NEW.text[30] != "A" else "B"

    with pytest.raises(UnauthenticatedError, match="mistyped"):
        parse_key(NEW.text[:30] + letter + NEW.text[31:])


def test_a_key_ends_at_its_expiry() -> None:
    _, secret = parse_key(NEW.text)

    with pytest.raises(UnauthenticatedError, match="expired"):
        NEW.key.check(secret, now=20.0)


def test_admin_includes_every_scope_and_read_includes_no_other() -> None:
    admin = Principal("k", "n", frozenset({KeyScope.ADMIN}), None)
    reader = Principal("k", "n", frozenset({KeyScope.READ}), None)

    assert all(admin.allows(scope) for scope in KeyScope)
    with pytest.raises(ForbiddenError, match="needs control"):
        reader.check_scope(KeyScope.CONTROL)
