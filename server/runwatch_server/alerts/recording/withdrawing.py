"""Withdraws a proposal when its alert is over: there is nothing left to cure, and as long as it
stood, nothing of its kind would be proposed for later alerts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.commands import CommandState
from runwatch_server.alerts.recording.transitions import Notify
from runwatch_server.alerts.records import AlertRecord, Resolution
from runwatch_server.clock import Clock
from runwatch_server.commands.changes import SERVICE, enter
from runwatch_server.commands.queries import find_addressee, list_for_alert
from runwatch_server.commands.signing import Signer

_WHY: Final[Mapping[Resolution, str]] = {
    Resolution.RECOVERED: "its alert has recovered",
    Resolution.SETTLED_WORSE: "its alert is over, though the run has not recovered",
    Resolution.RUN_ENDED: "the run is over",
    Resolution.ATTEMPT_ENDED: "a newer attempt began",
    Resolution.RULE_CHANGED: "its rule was changed or removed",
}


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """Called before `notify`, for each alert that fires or is resolved, in its transaction."""

    clock: Clock
    signer: Signer
    next_notify: Notify

    async def notify(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        if alert.state is AlertState.RESOLVED:
            await self._withdraw(connection, alert)
        await self.next_notify(connection, alert)

    async def _withdraw(self, connection: AsyncConnection, alert: AlertRecord) -> None:
        addressee = await find_addressee(connection, alert.run_id)
        if addressee is None or alert.resolution is None:
            return
        for command in await list_for_alert(connection, alert.run_id, alert.id):
            # A command that waits for another to end is not a proposal to a person.
            if command.state is CommandState.PROPOSED and command.after_id is None:
                await enter(
                    connection,
                    command,
                    addressee,
                    CommandState.CANCELLED,
                    at=self.clock.wall(),
                    actor=SERVICE,
                    signer=self.signer,
                    detail={"reason": _WHY[alert.resolution]},
                    is_wish=True,
                )
