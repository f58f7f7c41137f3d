"""Holds received commands until the next boundary, and rejects invalid ones."""

import logging
import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from runwatch.commands import SIGNATURE, Command, CommandState, Receipt
from runwatch.frames import Scalar
from runwatch.signatures import is_signed
from runwatch.vocabulary import CommandId, RunId
from runwatch_hooks.own_log import OwnLog, from_elsewhere
from runwatch_hooks.transport.receipts import ReceiptBox

log = OwnLog(__name__)

_LOGGED_A_MINUTE: Final = 10
"""Commands of a service that orders very many: it does not fill the log of the trainer."""


class CommandBox:
    """Passes each command on once, by its id, however often the service repeats it.

    A command that has expired, is meant for another attempt, or is not signed properly, gets a
    receipt and is not passed on.
    """

    def __init__(self, receipts: ReceiptBox, run_id: RunId, rank: int) -> None:
        self._receipts = receipts
        self._run_id = run_id
        self._rank = rank
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._waiting: list[Command] = []
        self._seen: set[CommandId] = set()

    def offer(
        self,
        commands: Iterable[Command],
        *,
        attempt: int,
        secret: bytes,
        service_time: float,
        next_step: int,
    ) -> int:
        """Take the commands from a reply; returns how many are new. With an empty `secret`,
        signatures are not checked."""
        with self._lock:
            fresh = [command for command in commands if command.id not in self._seen]
            self._seen.update(command.id for command in fresh)
        for command in fresh:
            reason = from_elsewhere(command.reason)
            log.seldom(
                logging.INFO,
                "command %s: %s (%s)",
                from_elsewhere(command.id),
                command.action.kind,
                reason,
                most=_LOGGED_A_MINUTE,
            )
            if command.attempt != attempt:
                error = f"meant for attempt {command.attempt}, this is {attempt}"
                self._answer(command, CommandState.REJECTED, next_step, {"error": error})
            elif secret and not is_signed(secret, self._run_id, command):
                self._answer(command, CommandState.REJECTED, next_step, _forged(command))
            elif not command.expires_at > service_time:
                self._answer(command, CommandState.EXPIRED, next_step)
            else:
                with self._lock:
                    self._waiting.append(command)
        return len(fresh)

    def take(self, *, service_time: float, next_step: int) -> list[Command]:
        """The commands received since the last call that have not expired, in order."""
        if not self._waiting:  # the usual case, at every boundary: no lock
            return []
        with self._lock:
            commands, self._waiting = self._waiting, []
        in_time: list[Command] = []
        for command in commands:
            if command.expires_at > service_time:
                in_time.append(command)
            else:
                self._answer(command, CommandState.EXPIRED, next_step)
        return in_time

    def _answer(
        self,
        command: Command,
        state: CommandState,
        step: int,
        detail: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> None:
        self._receipts.put(
            Receipt(
                command_id=command.id,
                attempt=command.attempt,
                rank=self._rank,
                state=state,
                step=step,
                detail=dict(detail),
            )
        )


def _forged(command: Command) -> dict[str, Scalar]:
    """Receipt detail for a command that is not signed with the attempt's secret."""
    found = "wrong" if command.signature else "missing"
    error = (
        f"signature: found {'one that does not fit' if command.signature else 'none'}, wanted the "
        "service's, with the secret that it gave to this attempt; the command was changed or made "
        "by somebody else"
    )
    log.seldom(
        logging.WARNING,
        "command %s (%s) is refused: %s",
        from_elsewhere(command.id),
        command.action.kind,
        error,
        most=_LOGGED_A_MINUTE,
    )
    return {"error": error, SIGNATURE: found}
