"""The blocks of code that the documents show are carried out, page by page, as a reader would.

Python blocks of a page run in one namespace, shell blocks in one folder, in their order, against a
real service whose address and key are in the environment. Before a block that cannot be run here
stands a comment, `<!-- not run: why -->`; without one it is run. A YAML block that the words before
it name (`mine.yaml`:) is that file.
"""

import contextlib
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.house import documents, reader
from tests.house.documents import Block

from runwatch_hooks import attach

RUN: Final = ("python", "sh")
SHOWN: Final = ("text", "yaml")
"""What is looked at, or given to the blocks that run: no program."""
MOST_NOT_RUN: Final = 23
"""May shrink. What cannot be run here is containers, other machines, installations and screens."""
_BLOCK_S: Final = 240.0

BLOCKS: Final = documents.blocks()
PAGES: Final = sorted(
    {block.page for block in BLOCKS if block.language in RUN and block.why_not_run is None}
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def place(service: RealService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own folder, the service in the environment, and a run of ours that is training."""
    reader.files(str(tmp_path))
    (tmp_path / "runwatch-data").symlink_to(service.database.parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNWATCH_URL", service.url)
    monkeypatch.setenv("RUNWATCH_TOKEN", service.admin_key)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with training_run() as run_id:
        monkeypatch.setenv("RUN", run_id)
        yield tmp_path


@contextlib.contextmanager
def training_run() -> Generator[str]:
    """The id of a run that takes a step every tenth of a second, in a thread, and may be told
    everything. What it is told is what the documents' commands do."""
    names = reader.torch_loop()
    model, optimizer = names["model"], names["optimizer"]
    allow = ("checkpoint", "lower_lr", "rollback", "stop")
    is_over = threading.Event()
    with attach(model, optimizer, run="llama-8b", checkpoints="ckpts", allow=allow) as watch:

        def train() -> None:
            while not is_over.wait(0.1):
                inputs = names["loader"][0].float()
                loss = model(inputs).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)

        thread = threading.Thread(target=train)
        thread.start()
        try:
            yield str(watch.run_id)
        finally:
            is_over.set()
            thread.join()


@pytest.mark.heavy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.ROOT)))
def test_what_a_page_shows_can_be_done(page: Path, place: Path) -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if block.page == page and block.why_not_run is None:
            names |= possessions_at(block, names)
            carry_out(block, names, place)
    finish(names)


def possessions_at(block: Block, names: dict[str, Any]) -> dict[str, Any]:
    if block.language != "python" or (names and block.possessions is None):
        return {}
    finish(names)
    given: dict[str, Any] = getattr(reader, block.possessions or "torch_loop")()
    return {"__name__": "document", **given}


def carry_out(block: Block, names: dict[str, Any], place: Path) -> None:
    if block.file is not None:
        (place / block.file).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        with contextlib.suppress(reader.CtrlC), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frameworks warn of what a small machine lacks
            exec(compile(block.text, block.place, "exec"), names)  # noqa: S102  (our documents)
    elif block.language == "sh":
        carry_out_shell(block)


def carry_out_shell(block: Block) -> None:
    # A look at a run that goes on would go on too.
    text = block.text.replace("runwatch tail $RUN", "runwatch tail $RUN --once")
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BLOCK_S,
    )

    assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"


def finish(names: dict[str, Any]) -> None:
    watch = names.pop("watch", None)
    if watch is not None:
        assert watch.num_faults == 0
        watch.finish()


def test_every_block_says_what_it_is() -> None:
    for block in BLOCKS:
        known = block.language in {*RUN, *SHOWN, "console"}
        assert known, f"{block.place}: {block.language}"
        if block.language in ("", "console"):
            assert block.why_not_run, f"{block.place}: say `text`, or why it is not run"


def test_few_blocks_are_not_run() -> None:
    left_out = {block.place: why for block in BLOCKS if (why := block.why_not_run) is not None}

    assert len(left_out) <= MOST_NOT_RUN, left_out
    assert all(len(why) > 10 for why in left_out.values())
