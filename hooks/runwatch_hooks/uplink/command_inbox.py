"""Receives commands within milliseconds, and holds them until the next boundary."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from runwatch.commands import SIGNATURE, Command, CommandState, Receipt
from runwatch.frames import Scalar
from runwatch.signatures import is_signed
from runwatch.vocabulary import CommandId, RunId
from runwatch_hooks.own_log import OwnLog, from_elsewhere
from runwatch_hooks.uplink.client import (
    ForbiddenError,
    RefusedError,
    RetryLaterError,
    StaleAttemptError,
)
from runwatch_hooks.uplink.recorder import ReceiptBox
from runwatch_hooks.uplink.service import Backoff, Service
from runwatch_hooks.uplink.threads import yield_to_training

log = OwnLog(__name__)

_FORBIDDEN_PAUSE_S: Final = 60.0
_REPEAT_PAUSE_S: Final = 0.25
"""Pause after a poll without new commands: until a long step ends, each poll returns the command
that waits for it again, at once."""


class Inbox:
    """Polls while `attempt()` is not None. `offer` returns how many commands were new."""

    def __init__(
        self,
        service: Service,
        *,
        rank: int,
        long_poll_s: float,
        attempt: Callable[[], int | None],
        offer: Callable[[tuple[Command, ...]], int],
    ) -> None:
        self._service = service
        self._rank = rank
        self._long_poll_s = long_poll_s
        self._attempt = attempt
        self._offer = offer
        self._backoff = Backoff()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-inbox", daemon=True)

    def start(self) -> None:
        """Start polling, once."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stop polling, without waiting for the current poll to return."""
        self._stopped.set()

    def _run(self) -> None:
        yield_to_training()
        while not self._stopped.is_set():
            try:
                pause_s = self._poll()
            except StaleAttemptError:
                return
            except ForbiddenError:
                pause_s = _FORBIDDEN_PAUSE_S
            except RetryLaterError as error:
                log.debug("inbox: %s", error)
                pause_s = self._backoff.failed(random.random(), error.retry_after_s)
            except RefusedError as error:
                log.debug("inbox: %s", error)
                pause_s = self._backoff.failed(random.random())
            except Exception:  # without this thread, no command would arrive any more
                log.exception("the inbox failed")
                pause_s = self._backoff.failed(random.random())
            self._stopped.wait(pause_s)

    def _poll(self) -> float:
        """Poll once; returns seconds to wait before the next poll."""
        attempt = self._attempt()
        if attempt is None:  # the sender has yet to open it again
            return self._backoff.failed(random.random())
        asked_at = time.monotonic()
        commands = self._service.next_commands(attempt, self._rank, self._long_poll_s).commands
        self._backoff.succeeded()
        if self._stopped.is_set() or self._offer(commands):
            return 0.0
        return max(_REPEAT_PAUSE_S - (time.monotonic() - asked_at), 0.0)


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
