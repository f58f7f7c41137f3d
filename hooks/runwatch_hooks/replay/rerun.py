"""Runs forward and backward of a bundle's step again, and traces non-finite numbers."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from runwatch_hooks.bundles import Bundle, Kept
from runwatch_hooks.bundles.memory import tensors_of
from runwatch_hooks.replay.errors import ReplayError
from runwatch_hooks.replay.lineage import Birth, Lineage
from runwatch_hooks.replay.places import Places
from runwatch_hooks.replay.program import Program, restore
from runwatch_hooks.state.tree import Mapped


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
