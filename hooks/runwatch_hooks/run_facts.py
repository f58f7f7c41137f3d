"""What a run is called and set up with, as `attach` is given it and the service will take it."""

from collections.abc import Mapping
from typing import cast

from runwatch.messages import TEXT_LIMIT
from runwatch_hooks.errors import AttachError


def check_text(place: str, text: object) -> None:
    """Raises AttachError unless it is a text that the service takes as a name."""
    wanted = f"wanted a text of 1 to {TEXT_LIMIT} characters"
    if not isinstance(text, str):
        raise AttachError(f"{place}: found {type(text).__name__}, {wanted}")
    if not 0 < len(text) <= TEXT_LIMIT:
        raise AttachError(f"{place}: found {len(text)} characters, {wanted}")


def config_of(config: object) -> dict[str, object]:
    """The hyper-parameters as a dictionary of their own; none is none."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise AttachError(f"config: found {type(config).__name__}, wanted a mapping")
    return dict(cast("Mapping[str, object]", config))
