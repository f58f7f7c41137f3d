"""The terminal into which a reader types the documents' shell blocks.

A `console` block shows what its commands print, too, which is compared; one that starts a service
goes on in a terminal of its own until the page is read to its end. Machines and folders that only
the documents have are here what the page's stand-ins say.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.house.documents import Block

_BLOCK_S: Final = 600.0
_START_S: Final = 240.0
_STOP_S: Final = 120.0
_ADDRESS: Final = re.compile(r"listens on (\S+)")
_KEY_FILE: Final = re.compile(r"the admin key is in (\S+),")
_TELL_HOW_IT_ENDED: Final = '__code=$?; echo "--- ended with $__code"; (exit $__code)'
"""And leave it in $? for the command that follows."""
_ANSWER: Final = re.compile(r"(.*?)--- ended with (\d+)\n", re.S)


@dataclass(frozen=True, slots=True)
class Served:
    """A service that a block has started."""

    url: str
    admin_key: str


class Terminal:
    def __init__(self, folder: Path, stand_ins: Mapping[str, str]) -> None:
        self._folder = folder
        self._stand_ins = stand_ins
        self._services: list[subprocess.Popen[bytes]] = []

    def type(self, block: Block) -> None:
        """Every command of a block ends with 0; of a `console` block only where the next is not
        `echo $?`, and each prints what the block says."""
        if block.language == "console":
            self._converse(block)
            return
        done = self._run(block.text)
        assert done.returncode == 0, f"{block.place}\n{done.stdout}"

    def serve(self, block: Block) -> Served:
        """Until the service that the block starts says where it listens."""
        log = self._folder / f"serve-{len(self._services)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self._bash(block.text),
                cwd=self._folder,
                env=os.environ | {"RUNWATCH_PORT": "0"},  # a free one
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._services.append(process)
        deadline = time.monotonic() + _START_S
        while (address := _ADDRESS.search(log.read_text())) is None:
            assert process.poll() is None, f"{block.place}\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{block.place}\n{log.read_text()}"
            time.sleep(0.02)
        told = _KEY_FILE.search(log.read_text())
        key = self._kept_key() if told is None else Path(told[1]).read_text().strip()
        return Served(address[1], key)

    def close(self) -> None:
        """Ctrl-C in the terminals of the services, which end in order."""
        for process in self._services:
            os.killpg(process.pid, signal.SIGINT)
        assert [process.wait(_STOP_S) for process in self._services] == [0] * len(self._services)

    def _kept_key(self) -> str:
        """Of a folder in which `runwatch run` was first: it kept its key there."""
        record = self._folder / "runwatch-data" / "run.json"
        return str(json.loads(record.read_text(encoding="utf-8"))["admin_key"])

    def _converse(self, block: Block) -> None:
        asked = _conversation(block.text)
        typed = "".join(f"{command}\n{_TELL_HOW_IT_ENDED}\n" for command, _ in asked)
        printed = self._run(f"set +e\n{typed}").stdout
        answers = _ANSWER.findall(printed)
        next_ones = [command for command, _ in asked[1:]] + [""]
        for (command, shown), (said, code), after in zip(asked, answers, next_ones, strict=True):
            place = f"{block.place}: {command}\n{printed}"
            assert said.strip() == shown.strip(), place
            assert code == "0" or after == "echo $?", place

    def _run(self, text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._bash(text),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_BLOCK_S,
        )

    def _bash(self, text: str) -> list[str]:
        for shown, here in self._stand_ins.items():
            text = text.replace(shown, here)
        return ["bash", "-eo", "pipefail", "-c", text]


def _conversation(text: str) -> list[tuple[str, str]]:
    """The commands of a `console` block, each with what it is shown to print."""
    _, *parts = re.split(r"^\$ ", text, flags=re.M)
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]
