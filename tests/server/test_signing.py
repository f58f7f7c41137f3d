"""The keys that the service signs with: where they are, and what is told of one that is not."""

import stat
from pathlib import Path

import pytest
from tests.server.harness import serve

from runwatch_server.errors import LostDatabaseError, SettingsError
from runwatch_server.settings import Settings
from runwatch_server.signing import KeyRing, MissingKeyError, open_key_ring

KEYS = [b"k" * 32, b"l" * 32]


def test_a_service_that_is_alone_makes_itself_a_key_that_nobody_else_can_read(
    tmp_path: Path,
) -> None:
    made = open_key_ring(Settings(data_dir=tmp_path), is_shared=False)

    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert (
        open_key_ring(Settings(data_dir=tmp_path), is_shared=False).current
        == made.current
        is not None
    )


@pytest.mark.anyio
async def test_a_service_that_has_lost_its_tables_does_not_begin_anew_beside_its_key(
    tmp_path: Path,
) -> None:
    """As where a service was killed, and somebody deleted the WAL that held all of it."""
    async with serve(tmp_path) as api:
        run_id = await api.new_run()
    database, kept = tmp_path / "runwatch.db", (tmp_path / "runwatch.db").read_bytes()
    database.write_bytes(b"")

    with pytest.raises(LostDatabaseError, match=r"runwatch\.db-wal deleted\? .* delete .*/secret"):
        async with serve(tmp_path):
            pass

    database.write_bytes(kept)
    async with serve(tmp_path, admin_key=api.admin_key) as again:
        assert (await again.json("GET", f"/runs/{run_id}"))["id"] == run_id
    database.write_bytes(b"")
    (tmp_path / "secret").unlink()
    async with serve(tmp_path) as anew:
        assert (await anew.json("GET", "/runs"))["runs"] == []


def test_replicas_sign_nothing_until_they_are_given_a_key(tmp_path: Path) -> None:
    assert open_key_ring(Settings(data_dir=tmp_path), is_shared=True).current is None
    assert list(tmp_path.iterdir()) == []


def test_the_first_key_signs_and_all_are_known() -> None:
    first, second = (KeyRing([key]).current for key in KEYS)
    ring = KeyRing(KEYS)

    assert ring.current == first
    assert second in ring


def test_a_derived_secret_is_of_one_key_and_one_purpose() -> None:
    ring = KeyRing(KEYS)
    first, second = (KeyRing([key]).current for key in KEYS)
    assert first is not None
    assert second is not None
    derived = {
        ring.derive(first, "orders", "run", "1"),
        ring.derive(first, "orders", "run", "2"),
        ring.derive(first, "proposals", "run", "1"),
        ring.derive(second, "orders", "run", "1"),
    }

    assert len(derived) == 4
    assert {len(secret) for secret in derived} == {32}


def test_a_key_that_is_not_there_is_no_key() -> None:
    with pytest.raises(MissingKeyError):
        KeyRing(KEYS).derive("0" * 16, "orders")


@pytest.mark.parametrize("text", ["", "short\n", f"{'k' * 32}\nshort\n", "\N{SNOWMAN}" * 40])
def test_a_file_that_holds_no_good_keys_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match="secret_file"):
        open_key_ring(Settings(secret_file=path), is_shared=True)


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        open_key_ring(Settings(secret_file=tmp_path / "keys"), is_shared=True)


def test_keys_of_the_environment_are_the_same_keys_and_are_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\n".join(KEYS))
    settings = Settings.from_env({"RUNWATCH_SECRET": b", ".join(KEYS).decode()})
    named = open_key_ring(Settings(secret_file=path), is_shared=True)

    assert open_key_ring(settings, is_shared=True).current == named.current
    assert KEYS[0].decode() not in repr(settings)


def test_two_sources_of_keys_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="found both"):
        Settings(secret="k" * 32, secret_file=tmp_path)
