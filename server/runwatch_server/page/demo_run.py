"""The demo's protected training, started from the page, to have a run to look at within seconds.

It is a process of its own, one at a time, with a key that expires when the process must end.
"""

import asyncio
import importlib.util
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from runwatch.messages import RunOpen
from runwatch.vocabulary import PolicyMode, RunId
from runwatch_server.auth.keys import KeyScope, Principal
from runwatch_server.auth.service import Keys
from runwatch_server.cancellation import end_tasks
from runwatch_server.clock import Clock
from runwatch_server.errors import ConflictError
from runwatch_server.runs.service import Runs

log = logging.getLogger(__name__)

PROJECT: Final = "demo"
COMMAND: Final = "runwatch demo --keep"
"""The command that does the same and more: three trainings, compared."""

_PROGRAM: Final = ("-m", "runwatch_hooks.demo", "--mode", "protected")
_LIMIT_S: Final = 900.0


def can_train() -> bool:
    """Whether PyTorch is installed beside the service, which itself never imports it."""
    return importlib.util.find_spec("torch") is not None


class PageRun:
    """At most one demo run of this process."""

    def __init__(self, url: str, clock: Clock, keys: Keys, runs: Runs) -> None:
        self._url = url
        self._clock = clock
        self._keys = keys
        self._runs = runs
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self, principal: Principal) -> RunId:
        """Start a demo run; returns the run's id at once. Raises ConflictError or
        ForbiddenError."""
        if not can_train():
            raise ConflictError(
                "no_torch",
                "The demo trains with PyTorch, which is not installed beside the service.",
            )
        if self.is_running:
            raise ConflictError("demo_running", "A demo run is under way: look at that one.")
        run_id = RunId(self._clock.new_ulid())
        begun = asyncio.Event()
        self._task = asyncio.create_task(self._train(run_id, begun), name="demo run")
        opened = RunOpen(run_id, "demo-protected", PROJECT)
        try:
            await self._runs.open(opened, principal)
            await self._runs.change(run_id, name=None, policy=PolicyMode.AUTO, by="the page")
        except BaseException:
            self._task.cancel()
            raise
        begun.set()
        return run_id

    async def stop(self) -> None:
        """End the training, however far it is."""
        if self._task is not None:
            await end_tasks([self._task])

    async def _train(self, run_id: RunId, begun: asyncio.Event) -> None:
        await begun.wait()
        key = await self._keys.create(
            "demo run",
            scopes={KeyScope.INGEST},
            project=PROJECT,
            expires_at=self._clock.wall() + _LIMIT_S,
            created_by="the page",
        )
        try:
            with tempfile.TemporaryDirectory(prefix="runwatch-demo-") as folder:
                code = await self._run_program(Path(folder), run_id, key.text)
            log.info("the demo run %s ended with code %s", run_id, code)
        finally:
            await self._keys.revoke(key.key.id, by="the page")

    async def _run_program(self, folder: Path, run_id: RunId, token: str) -> int | None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *_PROGRAM,
            *("--checkpoints", str(folder / "checkpoints")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RUNWATCH_URL": self._url,
                "RUNWATCH_TOKEN": token,
                "RUNWATCH_RUN_ID": run_id,
                "RUNWATCH_SPOOL": str(folder / "spool"),
            },
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await process.wait()
        except TimeoutError:
            log.warning("the demo run %s took longer than %.0f s", run_id, _LIMIT_S)
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
