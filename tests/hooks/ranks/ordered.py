"""A rank that is told to go back, then to lower its rate, then to stop, and says what it did."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from tests.hooks.recorder import RecordingLine
from torch import Tensor

from runwatch.commands import AnyAction, Command, LowerLr, Rollback, Stop
from runwatch.vocabulary import CommandId, RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.ranks import SharedAttempt, find_world, join_team
from runwatch_hooks.settings.environment import read_environment
from runwatch_hooks.settings.options import Options
from runwatch_hooks.watch import StepReport

ORDERS: Final[tuple[AnyAction, ...]] = (Rollback(), LowerLr(scale=0.5), Stop())
DEEDS: Final = ("rolled_back", "lowered_at", "stopped_at")
"""What is said of each, in the order of `ORDERS`."""
LONGEST_S: Final = 240.0
"""Less than `run_ranks` waits for."""
STEPS_BETWEEN: Final = 8
"""After the deed before it rank 0 waits for so many steps with an order: more than the ones that
a rollback has the ranks train again."""

Did = dict[str, Any]
"""What a rank says: `losses`, (step, bits) in the order of their training; `rates`, one of each
row, of rank 0; and the deeds, where they were done."""


def follow_orders(objects: Objects, train: Callable[[int], Tensor]) -> Did:
    """Train steps until all orders were carried out; `train` is given the step and says its loss,
    the same one whenever that step is trained."""
    line = RecordingLine()
    proposed = SharedAttempt(RunId("0" * 26), "0" * 26, time.time())
    team = join_team(find_world(read_environment()), proposed, is_run_given=True)
    assert team is not None
    options = Options(allow=("rollback", "lower_lr", "stop"), snapshot_every=3, good_after=1)
    watch = build_watch(objects, options, line.open, team)
    did: Did = {"losses": [], **dict.fromkeys(DEEDS)}
    num_done, num_since, until = 0, 0, time.monotonic() + LONGEST_S
    while num_done < len(ORDERS) and time.monotonic() < until:
        step = watch.next_step
        if num_since == STEPS_BETWEEN and dist.get_rank() == 0:
            line.commands.append(_command(num_done))
        loss = train(step)
        did["losses"].append((step, float(loss).hex()))
        report = watch.step(loss)
        num_since += 1
        deed = _deed(report, num_done)
        if deed is not None:
            did[DEEDS[num_done]] = deed
            num_done, num_since = num_done + 1, 0
    watch.finish()
    did["rates"] = line.metric("lr")
    return did


def write(did: Did, folder: Path) -> None:
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(did))


def check_replay(did: Did) -> None:
    """That the steps which a rollback undid were trained again, to the bit."""
    at, to = did["rolled_back"]
    before, after = dict(did["losses"][: at + 1]), dict(did["losses"][at + 1 :])
    again = before.keys() & after.keys()
    assert again == set(range(to, at + 1))
    assert {step: before[step] for step in again} == {step: after[step] for step in again}


def check_deeds(ranks: list[Did]) -> None:
    """That each order was carried out, by all at one step, and that the rate was lowered."""
    first = [ranks[0][deed] for deed in DEEDS]
    assert None not in first
    assert [[rank[deed] for deed in DEEDS] for rank in ranks] == [first] * len(ranks)
    rates = ranks[0]["rates"]
    assert {round(rate / rates[0], 6) for rate in rates} == {1.0, 0.5}


def _deed(report: StepReport, num_done: int) -> object:
    """Where the order that is due was carried out, if it was after this step."""
    if num_done == 0:
        to = report.rolled_back_to
        return None if to is None else (report.step, to)
    is_done = report.lr_scale == 0.5 if num_done == 1 else report.stop
    return report.step if is_done else None


def _command(number: int) -> Command:
    return Command(
        id=CommandId(f"{number:026}"),
        action=ORDERS[number],
        attempt=1,
        expires_at=time.time() + LONGEST_S,
    )
