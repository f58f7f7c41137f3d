"""Processes of a test, each with a line to it; torch is imported once, and they are forked."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import cast

from tests.waiting import LONGEST_S


class Process:
    """A process, and the line to it."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["torch.distributed", "torch._dynamo", "runwatch_hooks.attaching"]
        )
        self.line, theirs = context.Pipe()
        self._process = cast(
            BaseProcess, context.Process(target=target, args=(*arguments, theirs), daemon=True)
        )
        self._process.start()
        theirs.close()

    def recv(self) -> object:
        """What it says next."""
        assert self.line.poll(LONGEST_S), "nothing was said in time"
        return self.line.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def wait_for_death(self) -> None:
        self._process.join(LONGEST_S)
        assert self._process.exitcode == -9

    def end(self) -> None:
        """In order, if it lives."""
        try:
            self.line.send("end")
            self._process.join(30)
        except OSError:
            pass
        self.kill()
