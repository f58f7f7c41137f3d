"""The user's part of a replay: a function that returns the model, and a function for its loss.

def program(bundle):                                                # my_replay.py
    model = TinyGpt(vocabulary=512)
    return model, lambda batch: cross_entropy(model(batch[0]), batch[1])
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from runwatch_hooks.bundles import Bundle
from runwatch_hooks.replay.errors import ReplayError
from runwatch_hooks.state.tree import Mapped
from runwatch_hooks.statistics.layer_names import clean_name, named_parts

LossOf = Callable[[object], Tensor]
"""Computes the loss from a batch of the bundle. Without batches it is called once, with None."""
_WANTED = "a model (or a dict of models, as attach was given) and a function from a batch to a loss"


@dataclass(frozen=True, slots=True)
class Program:
    modules: Mapping[str, nn.Module]
    loss_of: LossOf


def build(reference: str, bundle: Bundle) -> Program:
    """Call `MODULE:FUNCTION` with a bundle. Raises ReplayError, and whatever the function
    raises."""
    made = _function(reference)(bundle)
    parts = _parts(made)
    if len(parts) != 2:
        raise ReplayError(f"{reference}: found {type(made).__name__}, wanted {_WANTED}")
    model, loss_of = parts
    modules: object = {"": model} if isinstance(model, nn.Module) else model
    if not isinstance(modules, Mapping) or not callable(loss_of):
        found = f"{type(model).__name__} and {type(loss_of).__name__}"
        raise ReplayError(f"{reference}: found {found}, wanted {_WANTED}")
    return Program(cast("Mapping[str, nn.Module]", modules), cast(LossOf, loss_of))


def _parts(made: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", made) if isinstance(made, tuple) else ()


def _function(reference: str) -> Callable[[Bundle], object]:
    name, colon, attribute = reference.partition(":")
    if not (name and colon and attribute):
        raise ReplayError(f"--program: found {reference!r}, wanted MODULE:FUNCTION")
    if name.endswith(".py"):  # a file may be given instead of a module
        sys.path.insert(0, str(Path(name).resolve().parent))
        name = Path(name).stem
    else:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0] and error.name != name:
            raise
        raise ReplayError(f"--program: found no module {name!r} here or installed") from error
    found: object = getattr(module, attribute, None)
    if not callable(found):
        raise ReplayError(f"--program: found no function {attribute!r} in {name}")
    return found


def restore(program: Program, state: Mapped, eval_modules: list[str]) -> None:
    """Load a bundle's state into the program's models, and set each submodule's mode.

    Raises ReplayError if the parameters differ. Name parts added by wrappers (DDP, torch.compile)
    are ignored.
    """
    saved_modules = cast("dict[str, Mapped]", state["modules"])
    if set(saved_modules) != set(program.modules):
        found, wanted = sorted(program.modules), sorted(saved_modules)
        raise ReplayError(f"models: found {found}, wanted {wanted}, as attach was given")
    with torch.no_grad():
        for name, module in program.modules.items():
            _restore_module(module, saved_modules[name])
            prefix = f"{name}:" if name else ""
            paths = [one.removeprefix(prefix) for one in eval_modules if one.startswith(prefix)]
            _set_modes(module, {clean_name(path) if path else "" for path in paths})


def _restore_module(module: nn.Module, saved: Mapped) -> None:
    parameters = _cleaned(cast("dict[str, Tensor]", saved["parameters"]))
    living = {clean_name(name): one for name, one in module.named_parameters()}
    for name in [*parameters, *living]:
        found, wanted = _form(living.get(name)), _form(parameters.get(name))
        if found != wanted:
            raise ReplayError(f"parameter {name}: found {found}, wanted {wanted}, as in the bundle")
    for name, parameter in living.items():
        parameter.copy_(parameters[name])
    buffers = _cleaned(cast("dict[str, Tensor | None]", saved["buffers"]))
    for name, buffer in module.named_buffers():
        kept = buffers.get(clean_name(name))
        if kept is not None and kept.shape == buffer.shape:
            buffer.copy_(kept)
    extra = _cleaned(cast("dict[str, object]", saved["extra"]))
    for path, part in named_parts(module):
        if clean_name(path) in extra:
            part.set_extra_state(extra[clean_name(path)])


def _set_modes(module: nn.Module, eval_paths: set[str]) -> None:
    for path, part in named_parts(module):
        part.training = (clean_name(path) if path else "") not in eval_paths


def _cleaned(named: Mapping[str, Any]) -> dict[str, Any]:
    return {clean_name(name): item for name, item in named.items()}


def _form(tensor: Tensor | None) -> str:
    return "none" if tensor is None else f"{list(tensor.shape)}"
