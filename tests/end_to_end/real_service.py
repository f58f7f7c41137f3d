"""`runwatch serve` in a process of its own, which can be killed and started again."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import urllib3
from tests.forking import SERVICE, Forked, fork
from tests.ports import reserved_port
from tests.proofs import proof, proof_for
from tests.waiting import until

from runwatch_server.secret_files import admin_key_in

NOBODY_IS_MISSED: Final = {"RUNWATCH_LOST_S": "3600"}
"""Runs that a test has sent have no trainer who goes on: a minute later they would be lost, and
have an alert of it, and whether a test lasts a minute is the machine's doing."""
BY_THE_CLOCK: Final = (
    "ThroughputDrop",
    "ThroughputCollapse",
    "StepOverdue",
    "PhaseOverdue",
    "NoStep",
)
"""Judge how long steps took, which is the machine's doing too."""


class RealService:
    """Over one data directory and one port, however often it is started; with a `database_url`
    one of several, of which the first one's `admin_key` holds for all. As a context it is started,
    and stopped however it goes."""

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str | None = None,
        admin_key: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._environment = environment
        self._database = [] if database_url is None else ["--database-url", database_url]
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._log = folder / "service.log"
        self._process: Forked | None = None
        self._http = urllib3.PoolManager(retries=False, timeout=60.0)
        self.admin_key = admin_key
        self.port = reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "RealService":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Until it is ready."""
        arguments = ["serve", "--port", str(self.port), "--data-dir", str(self._folder / "data")]
        arguments += self._database
        self._process = fork(
            SERVICE,
            "runwatch_server.cli",
            arguments,
            output=self._log,
            environment=os.environ | self._environment,
        )
        until(self._is_ready, said=self._log.read_text)
        if not self.admin_key:
            self.admin_key = admin_key_in(self._folder / "data") or ""

    @property
    def pid(self) -> int:
        assert self._process is not None, "started before it is asked for"
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It stands still where it is, and will know nothing of it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> Path:
        """All that it has printed."""
        return self._log

    @property
    def database(self) -> Path:
        """SQLite's file."""
        return self._folder / "data" / "runwatch.db"

    def rot_frame(self, run_id: str, seq: int) -> None:
        """Turns one bit near the end of a frame's bytes, as a disk does; SQLite, while it is
        stopped."""
        of_frame = "WHERE run_id = ? AND seq = ?"
        with closing(sqlite3.connect(self.database)) as database, database:
            found = database.execute(f"SELECT body FROM frames {of_frame}", (run_id, seq))
            ((body,),) = found.fetchall()
            turned = body[:-5] + bytes([body[-5] ^ 1]) + body[-4:]
            database.execute(f"UPDATE frames SET body = ? {of_frame}", (turned, run_id, seq))

    @property
    def resident_bytes(self) -> int:
        """Of memory, now."""
        return self._memory("VmRSS")

    @property
    def peak_bytes(self) -> int:
        """Of memory, at most since it was started."""
        return self._memory("VmHWM")

    def _memory(self, what: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{what}:")[1].split()[0]) * 1024

    @property
    def replica(self) -> str:
        """The name of this life among the replicas."""
        return str(self._readiness()["replica"])

    @property
    def num_waiting(self) -> int:
        """Number of frames that are stored and not judged."""
        return int(self._readiness()["frames_waiting"])

    def _readiness(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._http.request("GET", f"{self.url}/readyz").data)
        return found

    def stop(self) -> None:
        self._http.clear()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()

    def create_key(self, *scopes: str) -> str:
        key: str = self.ask("POST", "/keys", {"name": "a test", "scopes": scopes})["key"]
        return key

    def ask(self, method: str, path: str, message: object = None) -> Any:
        """The JSON that a person with the admin key gets, or a trainer that was opened with
        `token_of`; None where there is nothing to say."""
        if path.endswith("/receipt"):
            ordered = self.ask("GET", path.removesuffix("/receipt"))
            about = proof(ordered["run_id"], ordered["attempt"])
        else:
            about = proof_for(path, json.dumps(message).encode())
        reply = self._http.request(
            method,
            f"{self.url}/api/v1{path}",
            headers={"Authorization": f"Bearer {self.admin_key}", **about},
            json=message,
        )
        assert reply.status < 300, reply.data
        return json.loads(reply.data) if reply.data else None

    def judged_alerts(self, run_id: str) -> list[Any]:
        """All of a run, once every frame that is stored of it was judged."""
        path = f"/alerts?run_id={run_id}&limit=500"
        until(lambda: self.ask("GET", path)["judged"])
        found: list[Any] = self.ask("GET", path)["alerts"]
        return found

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            return self._http.request("GET", f"{self.url}/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False
