"""A thread that long-polls the service for commands, so that they arrive within milliseconds."""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from runwatch.commands import Command
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.backoff import Backoff
from runwatch_hooks.transport.errors import (
    ForbiddenError,
    RefusedError,
    RetryLaterError,
    StaleAttemptError,
)
from runwatch_hooks.transport.priority import yield_to_training
from runwatch_hooks.transport.service import Service

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
