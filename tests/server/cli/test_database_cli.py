"""`runwatch db`: the tables brought up, looked at, copied and put back."""

import shutil
import stat
from pathlib import Path

import pytest
from tests.server.harness import Storage, both_engines, frame, serve
from typer.testing import CliRunner, Result

from runwatch_server.cli.database import app
from runwatch_server.errors import DatabaseDamagedError


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def place(storage: Storage) -> list[str]:
    if storage.database_url is not None:
        return ["--database-url", storage.database_url]
    return ["--data-dir", str(storage.data_dir)]


@both_engines
def test_tables_that_were_brought_up_are_those_of_this_version(storage: Storage) -> None:
    upgraded = run("upgrade", *place(storage))
    checked = run("check", *place(storage))

    assert (upgraded.exit_code, checked.exit_code) == (0, 0)
    assert "the tables are those of this version" in checked.output


@pytest.mark.parametrize("command", [("check",), ("backup", "copy"), ("compact",)])
@pytest.mark.parametrize("folder", ["", "typo"])
def test_where_no_database_is_none_is_made(
    command: tuple[str, ...], folder: str, tmp_path: Path
) -> None:
    asked = run(*command, "--data-dir", tmp_path / folder)

    assert asked.exit_code == 2
    assert "wanted that of a service" in " ".join(asked.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables_is_said_to_need_an_upgrade(tmp_path: Path) -> None:
    (tmp_path / "runwatch.db").touch()

    checked = run("check", "--data-dir", tmp_path)

    assert checked.exit_code == 1
    assert "found the tables of version none" in checked.output


def test_a_file_that_is_no_database_is_told_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "runwatch.db").write_bytes(bytes(range(256)) * 64)

    checked = run("check", "--data-dir", tmp_path)

    assert checked.exit_code == 2
    assert "found damage (file is not a database)" in " ".join(checked.output.split())


@pytest.mark.anyio
async def test_no_service_starts_on_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "runwatch.db").write_bytes(bytes(range(256)) * 64)

    with pytest.raises(DatabaseDamagedError, match="wanted an intact database"):
        async with serve(tmp_path):
            pass


@pytest.mark.anyio
async def test_a_database_is_compacted_once_its_service_has_stopped(tmp_path: Path) -> None:
    async with serve(tmp_path) as api:
        run_id = await api.new_run()
        await api.post(run_id, frame(1, [1.0, 2.0]))
        refused = run("compact", "--data-dir", tmp_path)
    compacted = run("compact", "--data-dir", tmp_path)

    assert (refused.exit_code, compacted.exit_code) == (2, 0)
    assert "MiB before" in compacted.output
    async with serve(tmp_path, admin_key=api.admin_key) as again:
        assert (await again.series(run_id, metric="loss"))["values"] == [1.0, 2.0]


def test_postgresql_is_referred_to_its_own_tools_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_DATABASE_URL", "postgresql://runwatch@127.0.0.1/none")

    refused = run("compact")

    assert refused.exit_code == 2
    assert "use VACUUM FULL" in " ".join(refused.output.split())


@pytest.mark.anyio
async def test_a_copy_made_beside_a_running_service_starts_another(tmp_path: Path) -> None:
    async with serve(tmp_path / "first") as first:
        run_id = await first.new_run()
        await first.post(run_id, frame(1, [1.0, 2.0]))
        backed_up = run("backup", tmp_path / "copy", "--data-dir", tmp_path / "first")
        await first.post(run_id, frame(2, [3.0], first_step=2))

    restored = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "second")

    assert (backed_up.exit_code, restored.exit_code) == (0, 0), backed_up.output
    async with serve(tmp_path / "second", admin_key=first.admin_key) as second:
        assert (await second.series(run_id, metric="loss"))["values"] == [1.0, 2.0]


def test_a_copy_is_never_put_over_a_database(tmp_path: Path) -> None:
    run("upgrade", "--data-dir", tmp_path / "data")
    run("backup", tmp_path / "copy", "--data-dir", tmp_path / "data")

    again = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "data")

    assert again.exit_code == 2
    assert "it would be lost" in " ".join(again.output.split())


@pytest.mark.anyio
async def test_a_copy_is_not_put_beside_what_an_earlier_database_left(tmp_path: Path) -> None:
    """SQLite would play the log of a killed service into it, and so bring frames back."""
    data, killed = tmp_path / "data", tmp_path / "killed"
    async with serve(data) as first:
        run("backup", tmp_path / "copy", "--data-dir", data)
        await first.post(await first.new_run(), frame(1, [3.0]))
        shutil.copytree(data, killed)  # before the service ends, as a kill leaves it
    (killed / "runwatch.db").unlink()

    restored = run("restore", tmp_path / "copy", "--data-dir", killed)

    assert restored.exit_code == 2
    assert "runwatch.db-wal: found what is left" in " ".join(restored.output.split())
    assert not (killed / "runwatch.db").exists()


@pytest.mark.parametrize("name", ["a copy", "a%20copy", "a#copy", "a?copy&b=1"])
def test_a_copy_may_have_any_name(name: str, tmp_path: Path) -> None:
    run("upgrade", "--data-dir", tmp_path / "data")

    backed_up = run("backup", tmp_path / name, "--data-dir", tmp_path / "data")
    restored = run("restore", tmp_path / name, "--data-dir", tmp_path / "other")

    assert (backed_up.exit_code, restored.exit_code) == (0, 0), backed_up.output + restored.output


def test_databases_and_their_copies_are_for_their_user_alone(tmp_path: Path) -> None:
    run("upgrade", "--data-dir", tmp_path / "data")
    run("backup", tmp_path / "copy", "--data-dir", tmp_path / "data")
    run("restore", tmp_path / "copy", "--data-dir", tmp_path / "other")
    made = [tmp_path / name for name in ("data", "other", "copy", "other/runwatch.db")]

    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o700, 0o700, 0o600, 0o600]


def test_a_damaged_copy_is_not_put_back(tmp_path: Path) -> None:
    run("upgrade", "--data-dir", tmp_path / "data")
    run("backup", tmp_path / "copy", "--data-dir", tmp_path / "data")
    whole = (tmp_path / "copy").read_bytes()
    (tmp_path / "copy").write_bytes(whole[: len(whole) // 2])

    restored = run("restore", tmp_path / "copy", "--data-dir", tmp_path / "other")

    assert restored.exit_code == 2
    assert not (tmp_path / "other" / "runwatch.db").exists()


@pytest.mark.parametrize(("name", "found"), [("typo", "no such file"), ("", "a folder")])
def test_without_a_copy_nothing_is_put_back_and_no_folder_made(
    name: str, found: str, tmp_path: Path
) -> None:
    restored = run("restore", tmp_path / name, "--data-dir", tmp_path / "other")

    assert restored.exit_code == 2
    assert f"found {found}, wanted a copy that `runwatch db backup` made" in restored.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_where_a_copy_was_to_go(tmp_path: Path) -> None:
    run("upgrade", "--data-dir", tmp_path / "data")

    asked = run("backup", tmp_path / "typo" / "copy", "--data-dir", tmp_path / "data")

    assert asked.exit_code == 2
    assert f"{tmp_path / 'typo'}: found no such folder, wanted one for the copy" in asked.output


def test_for_postgresql_its_own_tools_are_named(tmp_path: Path) -> None:
    asked = run("backup", tmp_path / "copy", "--database-url", "postgresql://me@host/name")

    assert asked.exit_code == 2
    assert "pg_dump" in asked.output
