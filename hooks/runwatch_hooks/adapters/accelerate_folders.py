"""A watch's own state in the folders that `accelerator.save_state` writes.

In a file of ours, which may be absent: of objects that are registered with it Accelerate counts the
files, and refuses a folder of before the training was watched, or of one that is watched no more.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]

from runwatch.errors import InvalidInputError
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.watch import Watch

log = OwnLog(__name__)

NAME: Final = "runwatch.json"
"""Holds the states of all watches of an accelerator, by the names of their runs."""
_REGISTERED: Final = re.compile(r"custom_checkpoint_(\d+)\.pkl")

_State = Mapping[str, object]


class WatchInFolders:
    """Saved and loaded with all else, and never in its way."""

    def __init__(self, accelerator: Accelerator, watch: Watch, run: str) -> None:
        self._accelerator = accelerator
        self._watch = watch
        self._run = run
        self._in_old_place: _OldPlace | None = None
        accelerator.register_save_state_pre_hook(self._save)
        accelerator.register_load_state_pre_hook(self._load)

    def _save(self, models: object, weights: object, folder: str) -> None:
        self._leave_old_place()
        if not self._writes:
            return
        path = Path(folder) / NAME
        try:
            states = {**_read(path), self._run: self._watch.state_dict()}
            path.write_bytes(msgspec.json.encode(states))
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s: the state of the watch is not saved: %s", path, error)

    @property
    def _writes(self) -> bool:
        """The one process that writes Accelerate's own files, or one of each machine."""
        if self._accelerator.project_configuration.save_on_each_node:
            return bool(self._accelerator.is_local_main_process)
        return bool(self._accelerator.is_main_process)

    def _load(self, models: object, folder: str) -> None:
        self._leave_old_place()
        state = self._state_in(_read(Path(folder) / NAME))
        try:
            if state is not None:
                self._watch.load_state_dict(state)
            elif not self._take_old_place(Path(folder)) and self._watch.next_step == 0:
                log.warning(
                    "%s holds no state of a watch, so that the steps count from 0; where the "
                    "training goes on, say at which step: attach(..., next_step=...)",
                    folder,
                )
        except InvalidInputError as error:
            log.warning("%s: the state of the watch is not loaded: %s", folder, error)

    def _state_in(self, states: Mapping[str, _State]) -> _State | None:
        """This run's, or the only one's: a run may have been given another name."""
        if self._run not in states and len(states) == 1:
            return next(iter(states.values()))
        return states.get(self._run)

    def _take_old_place(self, folder: Path) -> bool:
        """Whether an earlier version has saved the folder, which registered its watch as an object:
        for this once Accelerate finds one in its place."""
        objects: list[object] = cast(Any, self._accelerator)._custom_objects
        numbers = [int(found[1]) for one in folder.iterdir() if (found := _matches(one))]
        if len(numbers) != len(objects) + 1:
            return False
        for number in sorted(numbers):
            if _is_of_a_watch(folder / f"custom_checkpoint_{number}.pkl"):
                self._in_old_place = _OldPlace(self._watch)
                objects.insert(number, self._in_old_place)
                return True
        return False

    def _leave_old_place(self) -> None:
        if self._in_old_place is not None:
            cast(Any, self._accelerator)._custom_objects.remove(self._in_old_place)
            self._in_old_place = None


class _OldPlace:
    """A watch as Accelerate knows an object that is registered."""

    def __init__(self, watch: Watch) -> None:
        self.state_dict = watch.state_dict
        self.load_state_dict = watch.load_state_dict


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, object]])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return {}


def _matches(path: Path) -> re.Match[str] | None:
    return _REGISTERED.fullmatch(path.name)


def _is_of_a_watch(path: Path) -> bool:
    try:
        state: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  another's object, of whatever kind
        return False
    return isinstance(state, dict) and {"next_step", "actor"} <= state.keys()
