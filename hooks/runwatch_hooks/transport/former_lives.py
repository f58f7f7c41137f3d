"""Sends the spools that earlier attempts of a run left behind.

A trainer that was killed could not send its last steps, and those are the most interesting ones.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from runwatch.errors import InvalidInputError
from runwatch.number_texts import counted
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.bring_in import Patience, Tally, bring_in
from runwatch_hooks.transport.client import Client
from runwatch_hooks.transport.errors import TransportError
from runwatch_hooks.transport.priority import yield_to_training
from runwatch_hooks.transport.settings import TransportSettings
from runwatch_hooks.transport.spool_folder import SpoolFolder, find_spools

log = OwnLog(__name__)

_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.05
"""Between two frames, so that the current attempt is served first: a frame of one second's steps
takes no longer than this."""


class FormerLives:
    """The spools of one rank's earlier attempts, in the same folder as its own. What cannot be sent
    now stays for the next attempt, or for `runwatch sync`."""

    def __init__(self, settings: TransportSettings, own_spool: Path, rank: int) -> None:
        self._settings = settings
        self._own_spool = own_spool
        self._rank = rank
        self._is_started = False

    def start(self) -> None:
        """Start a thread, if there is something to send. Called once the service has answered."""
        if self._is_started:
            return
        self._is_started = True
        left = self._find()
        if not left:
            return
        thread = threading.Thread(
            target=self._run, args=(left,), name="runwatch-former-lives", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no thread could be started
            log.debug("what earlier lives left stays where it is: %s", error)

    def _find(self) -> list[Path]:
        return [
            spool
            for spool in find_spools(self._own_spool.parent)
            if spool != self._own_spool and spool.name.endswith(f"-{self._rank}")
        ]

    def _run(self, left: Sequence[Path]) -> None:
        yield_to_training()
        client = Client.of(self._settings)
        if client is None:
            return
        try:
            for spool in left:
                _bring_in(SpoolFolder(spool), client)
        except Exception:  # a fault of the hook must not end up in the trainer's output
            log.exception("sending the spools of earlier attempts failed")
        finally:
            client.close()


def _bring_in(folder: SpoolFolder, client: Client) -> None:
    """Send one spool. A failure does not affect the others."""
    try:
        folder.lock()
        tally = bring_in(
            folder,
            client,
            patience=Patience(_PATIENCE_S),
            on_progress=_pause,
        )
    except TransportError as error:
        log.info("%s stays where it is: %s", folder.path, error)
    except (OSError, msgspec.DecodeError, InvalidInputError) as error:
        log.debug("%s stays where it is: %s", folder.path, error)  # its trainer may still live
    else:
        log.info("%s of an earlier attempt sent", counted(tally.num_steps, "step"))
    finally:
        folder.close()


def _pause(_: Tally) -> None:
    time.sleep(_PAUSE_S)
