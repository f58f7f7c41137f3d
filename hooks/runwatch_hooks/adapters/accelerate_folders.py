"""Saves a watch's own state in the folders that `accelerator.save_state` writes.

It is in a file of its own, which may be absent. Accelerate counts the files of registered objects,
and would refuse a folder from before the training was watched, or from a run no longer watched.
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
"""Name of the file with the states of all watches of an accelerator, by the names of their runs."""
_REGISTERED: Final = re.compile(r"custom_checkpoint_(\d+)\.pkl")

_State = Mapping[str, object]


class WatchInFolders:
    """Saves and loads a watch's state with everything else. Failures are only logged."""

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
        """Whether this process writes Accelerate's own files: one process, or one per machine."""
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
                    "%s holds no state of a watch, so the steps count from 0; if the "
                    "training continues, give its step: attach(..., next_step=...)",
                    folder,
                )
        except InvalidInputError as error:
            log.warning("%s: the state of the watch is not loaded: %s", folder, error)

    def _state_in(self, states: Mapping[str, _State]) -> _State | None:
        """This run's state, or the only one in the file: the run may have been renamed."""
        if self._run not in states and len(states) == 1:
            return next(iter(states.values()))
        return states.get(self._run)

    def _take_old_place(self, folder: Path) -> bool:
        """Whether an earlier version of the hook saved this folder, with the watch registered as an
        object. Then an object is registered in its place, for this load only."""
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
    """A watch as an object that can be registered with Accelerate."""

    def __init__(self, watch: Watch) -> None:
        self.state_dict = watch.state_dict
        self.load_state_dict = watch.load_state_dict


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, object]])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return {}


def _matches(path: Path) -> re.Match[str] | None:
    return _REGISTERED.fullmatch(path.name)


def _is_of_a_watch(path: Path) -> bool:
    try:
        state: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  an object of another kind
        return False
    return isinstance(state, dict) and {"next_step", "actor"} <= state.keys()
