"""Commands between the threads that receive them and the boundary that applies them."""

import logging
import threading
from collections.abc import Iterable

from runwatch.commands import Command, CommandState, Receipt
from runwatch.vocabulary import CommandId
from runwatch_hooks.transport.receipts import ReceiptBox

log = logging.getLogger(__name__)


class CommandBox:
    """Hands each command on once, by its id, however often the service repeats it.

    One that is past its time, or meant for another attempt, is answered and not handed on.
    """

    def __init__(self, receipts: ReceiptBox, rank: int) -> None:
        self._receipts = receipts
        self._rank = rank
        self._lock = threading.Lock()
        self._waiting: list[Command] = []
        self._seen: set[CommandId] = set()

    def offer(
        self, commands: Iterable[Command], *, attempt: int, service_time: float, next_step: int
    ) -> int:
        """Takes in what a reply carried; returns how many of the commands are new."""
        with self._lock:
            fresh = [command for command in commands if command.id not in self._seen]
            self._seen.update(command.id for command in fresh)
        for command in fresh:
            log.info("command %s: %s (%s)", command.id, command.action.kind, command.reason)
            if command.attempt != attempt:
                detail = f"meant for attempt {command.attempt}, this is {attempt}"
                self._answer(command, CommandState.REJECTED, next_step, detail)
            elif not command.expires_at > service_time:
                self._answer(command, CommandState.EXPIRED, next_step)
            else:
                with self._lock:
                    self._waiting.append(command)
        return len(fresh)

    def take(self, *, service_time: float, next_step: int) -> list[Command]:
        """What came since the last call and is still in time, in the order of its coming."""
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

    def _answer(self, command: Command, state: CommandState, step: int, error: str = "") -> None:
        self._receipts.put(
            Receipt(
                command_id=command.id,
                attempt=command.attempt,
                rank=self._rank,
                state=state,
                step=step,
                detail={"error": error} if error else {},
            )
        )
