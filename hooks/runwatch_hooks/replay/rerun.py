"""Runs forward and backward of a bundle's step again, and traces non-finite numbers."""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from runwatch_hooks.bundles import Bundle, Kept
from runwatch_hooks.bundles.memory import tensors_of
from runwatch_hooks.replay.lineage import Birth, Lineage, Places, ReplayError
from runwatch_hooks.state.tree import Mapped
from runwatch_hooks.statistics.layer_names import clean_name, named_parts

# The user's part of a replay: a function that returns the model, and a function for its loss.
#
# def program(bundle):                                                # my_replay.py
#     model = TinyGpt(vocabulary=512)
#     return model, lambda batch: cross_entropy(model(batch[0]), batch[1])

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


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of running the step once."""

    state: Kept
    losses: tuple[float, ...]
    broken: str
    """`loss`, `gradient`, or empty if everything was finite this time."""
    birth: Birth | None = None
    """Where the non-finite number came from; None if there is none, or if it is unknown."""
    broken_gradients: tuple[str, ...] = ()


def rerun(bundle: Bundle, program: Program, states: Sequence[tuple[Bundle, Kept]]) -> Finding:
    """Run the step from each state in turn until it breaks again. Raises ReplayError."""
    if not states:
        raise ReplayError(f"{bundle.path}: holds no state ({'; '.join(bundle.facts.notes)})")
    finding: Finding | None = None
    for holder, kept in states:
        if kept.is_sharded:
            raise ReplayError(
                f"{holder.path / kept.file}: holds one rank's parts of sharded parameters, which "
                "no single process can run"
            )
        state = cast(Mapped, holder.load(kept.file)["state"])
        restore(program, state, bundle.facts.eval_modules)
        finding = _run(bundle, program, kept, _loss_scale(state))
        if finding.broken:
            break
    assert finding is not None
    return finding


def _run(bundle: Bundle, program: Program, kept: Kept, scale: float) -> Finding:
    for module in program.modules.values():
        module.zero_grad(set_to_none=True)
    losses: list[float] = []
    places = Places(program.modules)
    lineage = Lineage(places)
    given = [*_given(program), *_tensors_of_batches(bundle)]
    # For its tracebacks. `check_nan` would raise at a NaN that comes from an infinity.
    anomaly = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with warnings.catch_warnings(), places, anomaly:
        warnings.simplefilter("ignore")  # torch warns that anomaly detection is slow
        for name, tensor in given:
            lineage.mark_given(name, tensor)
        for batch, rng in _batches(bundle):
            _set_rng(rng)
            with lineage:
                loss = program.loss_of(batch)
                if not isinstance(cast(object, loss), Tensor):
                    raise ReplayError(f"loss: found {type(loss).__name__}, wanted a tensor")
            losses.append(float(loss.detach().float().mean()))
            if not bool(loss.detach().isfinite().all()):
                return Finding(kept, tuple(losses), "loss", lineage.birth_of(loss.detach()))
            with lineage:
                torch.autograd.backward((loss * scale).sum())
            broken = _broken_gradients(program)
            if broken:
                births = [lineage.birth_of(gradient) for _, gradient in broken]
                names = tuple(name for name, _ in broken)
                return Finding(kept, tuple(losses), "gradient", _first(births), names)
    return Finding(kept, tuple(losses), "")


def _batches(bundle: Bundle) -> Iterator[tuple[object, Mapped]]:
    if not bundle.batches:
        yield None, bundle.rng
    yield from zip(bundle.batches, bundle.rngs, strict=True)


def _given(program: Program) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in program.modules.items():
        for name, parameter in module.named_parameters(prefix):
            yield f"parameter {name}", parameter.detach()
        for name, buffer in module.named_buffers(prefix):
            yield f"buffer {name}", buffer


def _tensors_of_batches(bundle: Bundle) -> Iterator[tuple[str, Tensor]]:
    for index, batch in enumerate(bundle.batches):
        for place, tensor in enumerate(tensors_of(batch)):
            yield f"batch {index}, tensor {place}", tensor


def _broken_gradients(program: Program) -> list[tuple[str, Tensor]]:
    """Non-finite gradients, in the order of backward: nearest to the loss first."""
    found = [
        (name, gradient)
        for prefix, module in program.modules.items()
        for name, parameter in module.named_parameters(prefix)
        if (gradient := parameter.grad) is not None and not bool(_finite(gradient))
    ]
    return found[::-1]


def _finite(gradient: Tensor) -> Tensor:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return values.isfinite().all()


def _first(births: Sequence[Birth | None]) -> Birth | None:
    return next((one for one in births if one is not None), None)


def _loss_scale(state: Mapped) -> float:
    """The gradient scaler's scale, with which gradients overflow as they did in the training."""
    for scaler in cast("dict[int, Mapped]", state.get("scalers", {})).values():
        if isinstance(scale := scaler.get("_scale"), Tensor):
            return float(scale)
    return 1.0


def _set_rng(rng: Mapped) -> None:
    torch.set_rng_state(cast(Tensor, rng["torch"]))
    cuda = cast("list[Tensor]", rng["cuda"])
    if cuda and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)
