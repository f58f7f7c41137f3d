"""A reader at work on one page of the documents: what it shows is done, block by block.

Python blocks share one namespace, shell blocks one folder and environment. A comment
`<!-- the reader has: NAME -->` before a block says what is at hand there: a function of
`tests.house.reader` before Python, of `tests.house.runs_at_hand` before shell.
"""

import contextlib
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from tests.house import reader, runs_at_hand
from tests.house.documents import Block
from tests.house.terminal import Terminal


class Session:
    def __init__(
        self,
        folder: Path,
        stand_ins: Mapping[str, str],
        environment: pytest.MonkeyPatch,
    ) -> None:
        """`stand_ins`: what is typed in the place of texts that only a reader's machine takes."""
        self._folder = folder
        self._environment = environment
        self._names: dict[str, Any] = {}
        self._terminal = Terminal(folder, stand_ins)
        self._at_hand = contextlib.ExitStack()
        self._at_hand.callback(self._terminal.close)
        self._has_run = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._at_hand.close()

    def use(self, url: str, key: str) -> None:
        """From here on, commands and trainings find this service."""
        self._environment.setenv("RUNWATCH_URL", url)
        self._environment.setenv("RUNWATCH_TOKEN", key)

    def follow(self, block: Block) -> None:
        if block.file is not None:
            (self._folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self._execute(block)
        elif block.is_service:
            served = self._terminal.serve(block)
            self.use(served.url, served.admin_key)
        else:
            self._provide(block)
            self._terminal.type(block)

    def finish(self) -> None:
        """The training of the page's Python came to its end without a fault of the hook."""
        watch = self._names.pop("watch", None)
        if watch is not None:
            assert watch.num_faults == 0
            watch.finish()

    def _execute(self, block: Block) -> None:
        if not self._names or block.possessions is not None:
            self.finish()
            given = getattr(reader, block.possessions or "torch_loop")()
            self._names |= {"__name__": "document", **given}
        with contextlib.suppress(reader.CtrlC), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frameworks warn of what a small machine lacks
            exec(compile(block.text, block.place, "exec"), self._names)  # noqa: S102  (ours)

    def _provide(self, block: Block) -> None:
        """What a shell block takes from the environment."""
        if block.possessions is not None:
            having = getattr(runs_at_hand, block.possessions)()
            for name, value in self._at_hand.enter_context(having).items():
                self._environment.setenv(name, value)
        if re.search(r"\$RUN\b", block.text) and not self._has_run:
            run_id = self._at_hand.enter_context(runs_at_hand.training())
            self._environment.setenv("RUN", run_id)
            self._has_run = True
