"""Brings in what earlier lives of a run have left: a trainer that was killed could not send its
last steps, and those are the ones that somebody wants to see."""

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
from runwatch_hooks.transport.service import Service
from runwatch_hooks.transport.settings import TransportSettings
from runwatch_hooks.transport.spool_folder import SpoolFolder, find_spools

log = OwnLog(__name__)

_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.05
"""From frame to frame, so that what is trained now goes first: a second's frame takes no longer."""


class FormerLives:
    """The spools of one rank's earlier attempts, beside its own. What does not come in now stays
    for the next life, or for `runwatch sync`."""

    def __init__(self, settings: TransportSettings, own_spool: Path, rank: int) -> None:
        self._settings = settings
        self._own_spool = own_spool
        self._rank = rank
        self._is_started = False

    def start(self) -> None:
        """Once the service has answered. Begins a thread where something was left, else does
        nothing."""
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
        except RuntimeError as error:  # no thread to be had
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
        except Exception:  # the last line between a fault of our own and the trainer's output
            log.exception("former lives: a fault of our own")
        finally:
            client.close()


def _bring_in(folder: SpoolFolder, client: Client) -> None:
    """One spool. One that cannot come in holds up no other."""
    try:
        folder.lock()
        tally = bring_in(
            folder,
            lambda run_id: Service(client, run_id),
            patience=Patience(_PATIENCE_S),
            on_progress=_pause,
        )
    except TransportError as error:
        log.info("%s stays where it is: %s", folder.path, error)
    except (OSError, msgspec.DecodeError, InvalidInputError) as error:
        log.debug("%s stays where it is: %s", folder.path, error)  # its trainer may still live
    else:
        log.info("of an earlier life %s came in", counted(tally.num_steps, "step"))
    finally:
        folder.close()


def _pause(_: Tally) -> None:
    time.sleep(_PAUSE_S)
