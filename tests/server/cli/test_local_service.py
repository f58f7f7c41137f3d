"""A service of this machine that starts, and goes wrong before its first job."""

import stat
import sys
from pathlib import Path

import pytest

from runwatch_server.cli import local_service
from runwatch_server.cli.local_service import LocalServiceError

HANGS_UP = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(f"listens on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
listener.accept()[0].close()
"""


def test_a_service_that_makes_no_key_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_service, "_SERVE", (sys.executable, "-c", HANGS_UP))
    (tmp_path / "admin-key").write_text("runwatch_first\n")

    with (
        pytest.raises(LocalServiceError, match="has started but made no key"),
        local_service.local_service(tmp_path),
    ):
        pass


@pytest.mark.parametrize("was_there", [False, True])
def test_its_locks_are_their_owners_alone_in_a_folder_that_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    monkeypatch.setattr(local_service, "_SERVE", (sys.executable, "-c", HANGS_UP))
    tmp_path.chmod(0o755)
    locks = [tmp_path / "run.lock", tmp_path / "run.users"]
    for lock in locks if was_there else []:
        lock.touch(0o644)

    with pytest.raises(LocalServiceError), local_service.local_service(tmp_path):
        pass

    assert [stat.S_IMODE(lock.stat().st_mode) for lock in locks] == [0o600] * 2
