"""Checks of single arguments of `attach` and `open_run`, by the limits of the service."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat, SupportsIndex, cast

from runwatch.frames import MAX_STEP
from runwatch.messages import TEXT_LIMIT, is_name
from runwatch_hooks.errors import AttachError


def check_text(place: str, text: object) -> None:
    """Raises AttachError unless `text` is a string that the service accepts as a name."""
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
    except UnicodeEncodeError:  # a lone surrogate, such as from a file name with an invalid byte
        wanted = "wanted a text that UTF-8 can carry"
        raise AttachError(f"{place}: found {text!r}, {wanted}") from None


def folder_of(place: str, path: object) -> Path:
    """The folder as a Path. Raises AttachError if `path` cannot be one."""
    wanted = "wanted the path of a folder"
    text = path
    if isinstance(path, os.PathLike):
        text = os.fspath(cast("os.PathLike[str] | os.PathLike[bytes]", path))
    if not isinstance(text, str):
        raise AttachError(f"{place}: found {type(text).__name__}, {wanted}")
    if "\0" in text:
        raise AttachError(f"{place}: found a zero byte, {wanted}")
    return Path(text)


def count_of(place: str, number: object, *, least: int) -> int:
    """A whole number as an int. Any numeric type will do, and so does 1e3, which YAML reads as a
    float. Raises AttachError if it is not whole or is less than `least`."""
    wanted = f"wanted a whole number, at least {least}"
    if isinstance(number, str):
        raise AttachError(f"{place}: found the text {number!r}, {wanted}")
    try:
        value = float(cast("SupportsFloat", number))
    except Exception:  # noqa: BLE001  any error of a user's `__float__`, such as a tensor's
        raise AttachError(f"{place}: found {type(number).__name__}, {wanted}") from None
    if not (value >= least and value.is_integer()):
        raise AttachError(f"{place}: found {number}, {wanted}")
    return int(value)


def check_state(state: object) -> None:
    """Raises AttachError if `state` cannot come from `Watch.state_dict`."""
    if not isinstance(state, Mapping | None):
        wanted = "wanted what `watch.state_dict()` returned"
        raise AttachError(f"state: found {type(state).__name__}, {wanted}")


def config_of(config: object) -> dict[str, object]:
    """The hyperparameters as a new dictionary. Raises AttachError if not a mapping or None."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise AttachError(f"config: found {type(config).__name__}, wanted a mapping")
    return dict(cast("Mapping[str, object]", config))


def step_of(place: str, step: object) -> int:
    """A step number as an int, from any integer type. Raises AttachError if it is out of range."""
    wanted = f"wanted a step from 0 to {MAX_STEP}"
    try:
        number = operator.index(cast("SupportsIndex", step))
    except TypeError:
        raise AttachError(f"{place}: found {type(step).__name__}, {wanted}") from None
    if not 0 <= number <= MAX_STEP:
        raise AttachError(f"{place}: found {number}, {wanted}")
    return number


def step_if_usable(step: object) -> int | None:
    """Like `step_of`, for a disabled hook, which must not raise: None for what is no step."""
    try:
        return step_of("next_step", step)
    except AttachError:
        return None


def text_if_usable(text: object) -> str | None:
    """The text, or None if it is empty or something else."""
    return text if isinstance(text, str) and text else None
