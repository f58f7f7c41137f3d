"""A trainer whose metric is too high at steps that a test chooses, and a rule of it."""

from dataclasses import dataclass
from typing import Any, Final

from tests.server.harness import Api, HandClock, frame
from tests.waiting import until_told

from runwatch.vocabulary import RunId

RULE: Final[dict[str, object]] = {
    "alert": "TooHigh",
    "when": "heat > 5",
    "keep_firing_for": {"steps": 5},
    "severity": "critical",
    "actions": [{"rollback": {}}],
}


def rule_file(rule: object) -> dict[str, object]:
    return {"version": 1, "metrics": ["heat"], "groups": [{"name": "t", "rules": [rule]}]}


@dataclass
class Trainer:
    """One whose metric, by default one that no built-in rule reads, is bad at chosen steps."""

    told: Api
    clock: HandClock
    run_id: RunId
    seq: int = 0
    step: int = 0
    metric: str = "heat"
    bad: float = 9.0

    async def send(self, heat: list[float]) -> None:
        self.seq += 1
        await self.told.post(
            self.run_id, frame(self.seq, heat, first_step=self.step, metric=self.metric)
        )
        self.step += len(heat)
        await self.told.until_judged(self.run_id)

    async def break_down(self) -> None:
        """At one step; until whoever is to hear of it has heard."""
        await self.send([self.bad])
        self.clock.now += 3
        await until_told(self._is_told)

    async def recover(self, num_steps: int = 30) -> None:
        await self.send([2.0] * num_steps)

    async def come_and_go(self, num_times: int) -> None:
        for _ in range(num_times):
            await self.break_down()
            await self.recover()

    async def _is_told(self) -> bool:
        fires = [one for one in await self.deliveries() if one["kind"] == "firing"]
        return all(one["state"] != "waiting" for one in fires)

    async def deliveries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.told.json("GET", "/notifications?limit=100"))[
            "notifications"
        ]
        return [one for one in found if one["run_id"] == self.run_id]


async def new_trainer(told: Api, clock: HandClock) -> Trainer:
    await told.json("POST", "/rules", json=rule_file(RULE))
    return Trainer(told, clock, await told.new_run(allow=["rollback"]))
