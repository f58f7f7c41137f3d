"""What a run is called, set up with and begun at, as `attach` is given it and the service will take
it."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, cast

from runwatch.frames import MAX_STEP
from runwatch.messages import TEXT_LIMIT, is_name
from runwatch_hooks.errors import AttachError


def check_text(place: str, text: object) -> None:
    """Raises AttachError unless it is a text that the service takes as a name."""
    wanted = f"wanted a text of 1 to {TEXT_LIMIT} characters, not blank"
    if not isinstance(text, str):
        raise AttachError(f"{place}: found {type(text).__name__}, {wanted}")
    if not is_name(text):
        is_blank = 0 < len(text) <= TEXT_LIMIT
        found = repr(text) if is_blank else f"{len(text)} characters"
        raise AttachError(f"{place}: found {found}, {wanted}")
    if "\0" in text:
        raise AttachError(f"{place}: found a zero byte, wanted a text that can be stored")
    try:
        text.encode()
    except UnicodeEncodeError:  # of a file's name with an odd byte, say
        wanted = "wanted a text that UTF-8 can carry"
        raise AttachError(f"{place}: found {text!r}, {wanted}") from None


def folder_of(place: str, path: object) -> Path:
    """Raises AttachError for what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise AttachError(f"{place}: found {type(path).__name__}, wanted the path of a folder")
    return Path(cast("str | os.PathLike[str]", path))


def count_of(place: str, number: object, *, least: int) -> int:
    """A whole number of any kind; 1e3, as files of settings have it, is one. Raises AttachError for
    one that is too small, and for what is none."""
    wanted = f"wanted a whole number, at least {least}"
    if isinstance(number, str):
        raise AttachError(f"{place}: found the text {number!r}, {wanted}")
    try:
        value = float(cast("SupportsFloat", number))
    except Exception:  # noqa: BLE001  a tensor's own, say
        raise AttachError(f"{place}: found {type(number).__name__}, {wanted}") from None
    if not (value >= least and value.is_integer()):
        raise AttachError(f"{place}: found {number}, {wanted}")
    return int(value)


def check_state(state: object) -> None:
    """Raises AttachError for what no `state_dict` returned."""
    if not isinstance(state, Mapping | None):
        wanted = "wanted what `watch.state_dict()` returned"
        raise AttachError(f"state: found {type(state).__name__}, {wanted}")


def config_of(config: object) -> dict[str, object]:
    """The hyper-parameters as a dictionary of their own; none is none."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise AttachError(f"config: found {type(config).__name__}, wanted a mapping")
    return dict(cast("Mapping[str, object]", config))


def step_of(place: str, step: object) -> int:
    """Raises AttachError for what numbers no step; any kind of integer may."""
    wanted = f"wanted a step from 0 to {MAX_STEP}"
    try:
        number = operator.index(cast("SupportsIndex", step))
    except TypeError:
        raise AttachError(f"{place}: found {type(step).__name__}, {wanted}") from None
    if not 0 <= number <= MAX_STEP:
        raise AttachError(f"{place}: found {number}, {wanted}")
    return number
