"""A real service for the demo: `runwatch serve` in a process of its own, on a free port."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from runwatch_server.demo.errors import ServiceFailedError
from runwatch_server.secret_files import admin_key_in, make_folder

_ADDRESS: Final = re.compile(r"https?://127\.0\.0\.1:\d+")
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05


class ServiceProcess:
    """A service that is started on a new data directory, where it leaves its admin key."""

    def __init__(self, folder: Path, *, database_url: str | None = None) -> None:
        self._database = [] if database_url is None else ["--database-url", database_url]
        self._data_dir = folder / "service"
        self._log_path = folder / "logs" / "service.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.admin_key = ""

    @property
    def pid(self) -> int:
        assert self._process is not None, "started before it is asked for"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it prints its address. Raises ServiceFailedError."""
        make_folder(self._log_path.parent)
        arguments = ["serve", "--port", "0", "--data-dir", str(self._data_dir), *self._database]
        with self._log_path.open("wb") as log_file:
            # In its own session, because with --keep it outlives this process and its Ctrl-C.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runwatch_server.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Never the database of a service that the user runs as well.
                env={k: v for k, v in os.environ.items() if k != "RUNWATCH_DATABASE_URL"},
            )
        deadline = time.monotonic() + _START_S
        while not self._has_printed_address():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceFailedError(f"the service did not start:\n{self._log()[-2000:]}")
            time.sleep(_LOOK_EVERY_S)

    def stop(self) -> None:
        """Stop it cleanly; what it has acknowledged is on disk anyway."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _has_printed_address(self) -> bool:
        address, key = _ADDRESS.search(self._log()), admin_key_in(self._data_dir)
        if address is None or key is None:
            return False
        self.url, self.admin_key = address.group(), key
        return True

    def _log(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")
