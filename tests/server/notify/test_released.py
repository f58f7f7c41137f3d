"""A page that another one explained goes on in the incident that people have open of that one."""

from typing import Final

import pytest
from tests.server.harness import Api, HandClock, both_engines
from tests.server.notify.sink import Sink
from tests.server.notify.trainer import Trainer
from tests.waiting import until_so

pytestmark = [pytest.mark.anyio, both_engines]

LEAPT: Final[dict[str, object]] = {"alert": "Leapt", "when": "heat > 5", "severity": "critical"}
STAYS_UP: Final[dict[str, object]] = {
    "alert": "StaysUp",
    "when": "heat > 1",
    "severity": "critical",
    "inhibited_by": [{"rules": ["Leapt"], "within": {"steps": 10}}],
    "actions": [{"rollback": {}}],
}
RULES: Final[dict[str, object]] = {
    "version": 1,
    "metrics": ["heat"],
    "groups": [{"name": "tests", "rules": [LEAPT, STAYS_UP]}],
}


async def test_it_acts_and_makes_no_message_and_no_end_of_its_own(
    told: Api, hand_clock: HandClock, sink: Sink
) -> None:
    await told.json("POST", "/rules", json=RULES)
    trainer = Trainer(told, hand_clock, await told.new_run(allow=["rollback"]))
    await trainer.send([0.0])
    await trainer.break_down()
    await trainer.send([2.0] * 30)
    hand_clock.now += 10
    commands = (await told.json("GET", f"/runs/{trainer.run_id}/commands"))["commands"]
    await trainer.send([0.0] * 3)
    hand_clock.now += 10
    await until_so(lambda: len(sink.posts) == 2)

    assert [body["title"].partition(" in ")[0] for body in sink.bodies] == [
        "[critical] Leapt",
        "[resolved] StaysUp, Leapt",
    ]
    assert len({body["dedup_key"] for body in sink.bodies}) == 1
    assert [one["action"]["kind"] for one in commands] == ["rollback"]
