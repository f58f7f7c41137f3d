"""What can be seen in a run's series around the onset of an alert.

Legend: N rows of a series. A series that was not recorded has no rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from runwatch.nonfinite import is_absent
from runwatch.number_texts import count, counted, number
from runwatch.rules.diagnosis import Sign
from runwatch.rules.statistics import MAD_TO_STD
from runwatch.rules.windows import Floats, Ints

LOOK_BACK_STEPS: Final = 256
LOOK_AHEAD_STEPS: Final = 64
_NEAR_STEPS: Final = 32
"""A series that left its past so few steps before the onset has to do with it."""
_LEAP_STEPS: Final = 128
"""A leap of the loss so few steps before the onset is where it began, if nothing has made it good
since: what the rule waits for came later."""
_DEVIATIONS: Final = 6.0
_LEAST_MOVE: Final = 0.25
"""Of the median: what moves by less has not left its past, however quiet that was."""
_FARTHER: Final = 2.0
"""Times the farthest move of the past: layers scatter by factors, and of hundreds over some tens of
steps one always goes a little farther than it had."""
_EXCURSION: Final = 4.0
"""Times the distance that counts as far: what went less far and was back before the onset is noise
of a kind that the past had not shown yet."""
_STAYED: Final = 0.8
"""The share of the rows up to the onset that must be far too, where the first of them is not."""
_LEAP: Final = 0.75
"""The share of its way that a series comes in one row where it leaps. What grows takes several."""
_LR_JUMP: Final = 1.5
_LR_ROSE: Final = 1.2


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A series around the onset, without what was not recorded."""

    steps_N: Ints
    values_N: Floats

    @classmethod
    def of(cls, steps_T: Ints, values_T: Floats) -> "Recorded":
        """Of rows that may not have recorded it: `nonfinite.ABSENT_64` is no value."""
        held = ~is_absent(values_T)
        return cls(steps_T[held], values_T[held])

    @property
    def size(self) -> int:
        return len(self.steps_N)

    def until(self, step: int) -> "Recorded":
        """What came before a step."""
        before = self.steps_N < step
        return Recorded(self.steps_N[before], self.values_N[before])

    def since(self, step: int) -> "Recorded":
        after = self.steps_N >= step
        return Recorded(self.steps_N[after], self.values_N[after])


@dataclass(frozen=True, slots=True)
class Departure:
    """The first step at which a series left its past."""

    step: int
    value: float
    before: float
    """The median of its past."""
    has_leapt: bool = False
    """It came most of the way from one row to the next."""


def departure(series: Recorded, onset: int) -> Departure | None:
    """Where a series left its past, if it did so near the onset. NaN and infinity leave it."""
    past = series.until(onset - _NEAR_STEPS)
    if np.isfinite(past.values_N).sum() < 8:  # early in a run: all that came before the onset
        past = series.until(onset)
    finite = past.values_N[np.isfinite(past.values_N)][-64:]
    centre = float(np.median(finite)) if finite.size else 0.0
    moves = np.abs(finite - centre) if finite.size else np.zeros(1)
    limit = max(
        _DEVIATIONS * MAD_TO_STD * float(np.median(moves)),
        _FARTHER * float(np.max(moves)),
        _LEAST_MOVE * abs(centre),
    )
    near = series.since(int(past.steps_N[-1]) + 1 if past.size else 0)
    is_far = ~(np.abs(near.values_N - centre) <= limit)
    if not finite.size:
        is_far = ~np.isfinite(near.values_N)
    is_telling = is_far & ~(np.abs(near.values_N - centre) <= _EXCURSION * limit)
    num_before = int((near.steps_N < onset).sum())
    for place in np.flatnonzero(is_far).tolist():
        stayed = place >= num_before or bool(is_far[place:num_before].mean() >= _STAYED)
        if stayed or is_telling[place]:
            return _departure_at(series, int(near.steps_N[place]), centre)
    return None


def began_at(loss: Recorded, onset: int) -> int:
    """The step at which what an alert is about began: its onset, or a leap of the loss well before
    it that nothing has made good since."""
    if departure(loss, onset) is not None:
        return onset
    for earlier in range(onset - _NEAR_STEPS, onset - _LEAP_STEPS, -_NEAR_STEPS):
        gone = departure(loss, earlier)
        if gone is not None and gone.has_leapt and gone.step < onset and _lasts(loss, gone, onset):
            return gone.step
    return onset


def _lasts(loss: Recorded, gone: Departure, onset: int) -> bool:
    """Whether a loss that rose has stayed above half of the way that it came."""
    since = loss.since(gone.step).until(onset).values_N
    half = gone.before + 0.5 * (gone.value - gone.before)
    return gone.value > gone.before and bool((since > half).mean() >= _STAYED)


def _departure_at(series: Recorded, step: int, centre: float) -> Departure:
    before, value = series.until(step), float(series.since(step).values_N[0])
    has_leapt = bool(
        before.size and abs(value - before.values_N[-1]) >= _LEAP * abs(value - centre)
    )
    return Departure(step, value, centre, has_leapt)


def lr_signs(
    lr: Recorded, onset: int, others: Mapping[str, Recorded] = MappingProxyType({})
) -> dict[Sign, str]:
    """What the learning rate did before the onset. `others` are those of further groups, by the
    names of their metrics: a jump of one of them counts where that of the first group has none."""
    found: dict[Sign, str] = {}
    for name, other in others.items():
        found = found or _lr_jump(other.until(onset + 1), name)
    return found | _first_lr_signs(lr, onset)


def _first_lr_signs(lr: Recorded, onset: int) -> dict[Sign, str]:
    before = lr.until(onset + 1)
    if before.size == 0:
        return {}
    if before.values_N[-1] == 0.0:
        return {Sign.LR_ZERO: "the learning rate is 0"}
    return _lr_jump(before) | _lr_rise(before)


def _lr_jump(before: Recorded, name: str = "the learning rate") -> dict[Sign, str]:
    if before.size < 2:
        return {}
    ratios = before.values_N[1:] / np.maximum(before.values_N[:-1], 1e-30)
    jumps = np.flatnonzero((ratios >= _LR_JUMP) & (before.values_N[:-1] > 0.0))
    # The first steps of a warm-up rise by large factors, and are none.
    jumps = jumps[jumps >= 8]
    if not jumps.size:
        return {}
    place = int(jumps[-1])
    old, new = (number(value, 3) for value in before.values_N[place : place + 2])
    step = count(int(before.steps_N[place + 1]))
    return {Sign.LR_JUMPED: f"{name} jumped from {old} to {new} at step {step}"}


def _lr_rise(before: Recorded) -> dict[Sign, str]:
    if before.size < 2:
        return {}
    highest = int(np.argmax(before.values_N))
    first, top, last = before.values_N[0], before.values_N[highest], before.values_N[-1]
    step, height = count(int(before.steps_N[highest])), number(top, 3)
    if not top >= _LR_ROSE * max(first, 1e-30):
        return {}
    rose = f"the learning rate rose from {number(first, 3)} to {height} by step {step}"
    stopped = highest < before.size - 1 or (before.size > 4 and before.values_N[-3] == last)
    ended = {Sign.WARMUP_ENDED: f"it had risen to {height}, and stopped rising at step {step}"}
    return {Sign.LR_ROSE: rose, **(ended if stopped else {})}


def scaler_signs(scale: Recorded, skipped: Recorded, clip: Recorded, onset: int) -> dict[Sign, str]:
    """What AMP's scaler and clipping did before and around the onset."""
    found: dict[Sign, str] = {}
    if scale.size:
        found[Sign.HALF_PRECISION] = "a loss scaler is at work"
        highest, last = float(np.max(scale.values_N)), float(scale.values_N[-1])
        if last <= 0.5 * highest:
            found[Sign.SCALE_FELL] = f"the loss scale fell from {number(highest)} to {number(last)}"
    num_skipped = int((skipped.values_N > 0.0).sum())
    if num_skipped > 1:
        found[Sign.STEPS_SKIPPED] = f"{count(num_skipped)} steps were skipped around it"
    before = clip.until(onset)
    if before.size == 0:
        found[Sign.UNCLIPPED] = "no clipping was recorded"
    elif (before.values_N < 1.0).mean() > 0.5:
        found[Sign.CLIPPED] = "most gradients before it were clipped"
    return found


def order_signs(
    loss: Departure | None, gradient: Departure | None, grew: bool, *, lr_jumped: bool = False
) -> dict[Sign, str]:
    """Which of loss and gradient went first.

    A step's gradient comes from its loss. So if both leapt at one step, after ordinary ones, the
    weights had no time to go bad, unless the learning rate had jumped: what changed is the batch,
    its labels or the loss.
    """
    found: dict[Sign, str] = {}
    if grew:
        found[Sign.GRADIENT_GREW] = "the gradient norm had been growing before"
    if gradient is not None and (loss is None or gradient.step < loss.step):
        after = "the loss did not" if loss is None else f"the loss at step {count(loss.step)}"
        found[Sign.GRADIENT_FIRST] = (
            f"the gradient left its past at step {count(gradient.step)}, {after}"
        )
    if loss is None:
        return found
    step = count(loss.step)
    if gradient is None or _precedes(loss, gradient):
        after = (
            "the gradient did not"
            if gradient is None
            else f"the gradient at {count(gradient.step)}"
        )
        found[Sign.LOSS_FIRST] = f"the loss left its past at step {step}, {after}"
    elif loss.has_leapt and loss.step == gradient.step and not lr_jumped:
        found[Sign.LOSS_FIRST] = (
            f"the loss leapt at step {step}, after ordinary losses and gradients"
        )
    return found


def _precedes(loss: Departure, gradient: Departure) -> bool:
    """Whether the loss left its past first. At the same step it did only if it is not finite."""
    is_broken = not np.isfinite(loss.value)
    return loss.step < gradient.step or (loss.step == gradient.step and is_broken)


def grew_before(series: Recorded, onset: int) -> bool:
    """Whether a series had doubled over the rows before the onset, without the last few."""
    finite = series.until(onset - 2)
    values = finite.values_N[np.isfinite(finite.values_N)]
    if len(values) < 24:
        return False
    third = len(values) // 3
    early, late = float(np.median(values[:third])), float(np.median(values[-third:]))
    return late >= 2.0 * abs(early) > 0.0


def layer_signs(first_layer: str | None, num_layers: int, known_layers: int) -> dict[Sign, str]:
    """What the failing layers say by their number and by the name of the first."""
    found: dict[Sign, str] = {}
    if first_layer is None:
        return found
    if num_layers == 1:
        found[Sign.ONE_LAYER] = f"only {first_layer} fails"
    elif known_layers and num_layers >= 0.8 * known_layers:
        found[Sign.ALL_LAYERS] = f"{count(num_layers)} of {counted(known_layers, 'layer')} fail"
    name = first_layer.lower()
    if any(part in name for part in ("emb", "wte", "wpe")):
        found[Sign.EMBEDDING] = f"it began in {first_layer}"
    if any(part in name for part in ("attn", "attention", "qkv", "q_proj", "k_proj")):
        found[Sign.ATTENTION] = f"it began in {first_layer}"
    return found


def in_order(departures: Mapping[str, Departure]) -> Sequence[tuple[str, Departure]]:
    """Series by the step at which they left their past."""
    return sorted(departures.items(), key=lambda one: (one[1].step, one[0]))
