"""The rules that nobody can remove: a loss, gradient or parameter that is not finite.

A user's comparison with NaN is false, so no threshold would ever see one. These rules look for it,
in the run and in every layer, before all others. They are code and not documents, because they must
name the run's own numbers and the layers in one alert, and because no document may weaken them.

What an evaluation gives has a rule of its own. It comes at some steps only, and between them says
nothing, so its alert stands until an evaluation is finite; one alert of both would have to stand as
long, and hide a training that breaks meanwhile.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from runwatch.alerts import Span
from runwatch.aliases import role_of
from runwatch.commands import Rollback
from runwatch.nonfinite import is_absent
from runwatch.rules.block import Block
from runwatch.rules.diagnosis import Cause, Diagnosis, Sign
from runwatch.rules.rule import Inhibition, Rule
from runwatch.rules.templates import Template
from runwatch.rules.windows import Bools, Floats
from runwatch.series import GUARDED_METRICS, GUARDED_STATS, Role, Source
from runwatch.vocabulary import Scope, Severity

RUN_COLUMN: Final = ""
"""Stands before the layers, for the run's own metrics."""

_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_LOSSES: Final = frozenset({"loss", "losses"})
_BESTS: Final = frozenset({"best", "lowest", "min"})
"""Of a lowest loss so far, which is infinite before there is one."""
_OF_LOSSES: Final = frozenset(
    {
        *("before", "broken", "chance", "coef", "count", "delta", "diff", "factor", "gap"),
        *("improvement", "mask", "ratio", "scale", "scaler", "std", "var", "weight", "weights"),
    }
)
"""What else is said of losses, in names such as `loss_scale`."""
_EVALUATIONS: Final = frozenset(
    {*("val", "valid", "validation", "eval", "evaluation", "dev", "test", "heldout", "holdout")}
)

_MOST_DOUBLINGS: Final = 5
"""What came back five times is over after 640 sound steps."""

NON_FINITE: Final = Rule(
    name="NonFinite",
    scope=Scope.LAYER,
    text="a loss of the training, a gradient or a parameter is NaN or infinite",
    keep_firing_for=Span(steps=20),
    keep_doublings=_MOST_DOUBLINGS,
    severity=Severity.CRITICAL,
    summary=Template("{origin} at step {onset_step}{spread}"),
    runbook="docs/runbooks/non-finite.md",
    diagnosis=Diagnosis(
        causes=(
            Cause(
                "overflow in half precision",
                (Sign.HALF_PRECISION, Sign.SCALE_FELL, Sign.STEPS_SKIPPED),
            ),
            Cause(
                "a label or token index out of range, log(0), a division by zero or an empty batch",
                (Sign.LOSS_FIRST, Sign.ONE_STEP),
            ),
            Cause(
                "an operation without a defined gradient there: a root or a norm of zero, a custom "
                "operation",
                (Sign.GRADIENT_FIRST, Sign.ONE_LAYER),
            ),
            Cause(
                "gradients that exploded until they overflowed",
                (Sign.GRADIENT_GREW, Sign.LR_ROSE, Sign.LR_JUMPED, Sign.UNCLIPPED),
            ),
            Cause("a parameter that was broken before", (Sign.PARAMETER_BROKEN, Sign.RESUMED)),
        ),
        try_first=Template(
            "go back to the last state from before step {onset_step} and skip the batch. Keep that "
            "batch and look at it. If it happens again on other data, run the named layer in "
            "float32"
        ),
        worked_if=Template("loss and gradients stay finite past the step at which they broke"),
    ),
    actions=(Rollback(),),
    document={"builtin": "NonFinite", "version": 1},
)

NON_FINITE_EVALUATION: Final = Rule(
    name="NonFiniteEvaluation",
    text="the loss of an evaluation is NaN or infinite",
    keep_firing_for=Span(steps=20),
    keep_doublings=_MOST_DOUBLINGS,
    severity=Severity.CRITICAL,
    summary=Template("{origin} at step {onset_step}, in an evaluation"),
    runbook="docs/runbooks/non-finite-evaluation.md",
    diagnosis=Diagnosis(
        causes=(
            Cause("an evaluation without batches: a mean over nothing", ()),
            Cause("a label or token index out of range, log(0) or a division by zero", ()),
            Cause("overflow in half precision: the loss scaler does not protect an evaluation", ()),
            Cause("running statistics or averaged weights that are broken, or were never set", ()),
        ),
        try_first=Template(
            "evaluate one batch by hand and look for the first number that is not finite. Count "
            "the batches of the evaluation"
        ),
        worked_if=Template("the next evaluation is finite"),
    ),
    inhibited_by=(Inhibition((NON_FINITE.name,)),),
    document={"builtin": "NonFiniteEvaluation", "version": 1},
)
"""It proposes nothing: no rollback mends an evaluation whose model trains on."""

IN_CODE: Final = (NON_FINITE, NON_FINITE_EVALUATION)
"""Judged always, and before all others."""
IN_CODE_NAMES: Final = frozenset(rule.name for rule in IN_CODE)


@lru_cache(maxsize=4096)
def is_loss(name: str) -> bool:
    """Whether a metric is a loss by its name: `loss`, `val_loss`, `aux/loss`, `loss_G`, `lossD`.

    Not the lowest one so far, nor a number about a loss, such as `loss_scale`.
    """
    if role_of(name) in (Role.LOSS, Role.EVALUATION_LOSS):
        return True
    words = _words_of(name)
    if _LOSSES.isdisjoint(words) or not _BESTS.isdisjoint(words):
        return False
    return words[-1] == "loss" or _OF_LOSSES.isdisjoint(words)


@lru_cache(maxsize=4096)
def is_of_evaluation(name: str) -> bool:
    """Whether an evaluation gives a metric, by its name: `val_loss`, `eval/loss`, `test_acc`."""
    is_known = role_of(name) is Role.EVALUATION_LOSS
    return is_known or not _EVALUATIONS.isdisjoint(_words_of(name))


def _words_of(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def judge_non_finite(block: Block) -> tuple[Bools, Bools, Floats]:
    """(T, 1 + L) which numbers broke, which are known, and what the alert shows for each.

    A gradient that is not finite at a step which the loss scaler skipped is no failure: that is
    how a scaler finds its scale. It shows in the series, and LossScaleCollapse watches it.
    """
    skipped_T = _skipped(block)
    run_T, run_known_T, shown_T = _judge_run(block, skipped_T)
    layers_TL, known_TL, counts_TL = _judge_layers(block, skipped_T)
    return (
        np.column_stack([run_T, layers_TL]),
        np.column_stack([run_known_T, known_TL]),
        np.column_stack([shown_T, counts_TL]),
    )


def _skipped(block: Block) -> Bools:
    column = block.rows.metric_columns.get("skipped")
    if column is None:
        return np.zeros(block.num_rows, np.bool_)
    return np.asarray(block.rows.metrics[:, column] > 0.0)


def judge_evaluations(block: Block) -> tuple[Bools, Bools, Floats]:
    """(T, 1) where the loss of an evaluation broke, where one is known, and what the alert shows.

    Between evaluations nothing is known, and an alert stands as it stood.
    """
    is_excused_T = np.zeros(block.num_rows, np.bool_)
    broken_T, known_T, shown_T = _judge_metrics(
        block, lambda name: is_loss(name) and is_of_evaluation(name), is_excused_T
    )
    return broken_T[:, np.newaxis], known_T[:, np.newaxis], shown_T[:, np.newaxis]


def _judge_run(block: Block, skipped_T: Bools) -> tuple[Bools, Bools, Floats]:
    return _judge_metrics(block, _is_of_training, skipped_T)


def _is_of_training(name: str) -> bool:
    if is_loss(name):
        return not is_of_evaluation(name)
    return name in GUARDED_METRICS


def _judge_metrics(
    block: Block, is_wanted: Callable[[str], bool], skipped_T: Bools
) -> tuple[Bools, Bools, Floats]:
    broken_T = np.zeros(block.num_rows, np.bool_)
    known_T = np.zeros(block.num_rows, np.bool_)
    shown_T = np.full(block.num_rows, np.nan)
    for column, name in enumerate(block.rows.metric_names):
        if not is_wanted(name):
            continue
        values_T = np.ascontiguousarray(block.rows.metrics[:, column])
        recorded_T = ~is_absent(values_T)
        spec = GUARDED_METRICS.get(name)
        is_fine_T = values_T <= 0.0 if spec and spec.is_count else np.isfinite(values_T)
        is_excused = spec is not None and spec.source is Source.GRADIENT
        breaks_T = recorded_T & ~is_fine_T & ~(skipped_T & is_excused)
        shown_T = np.where(breaks_T & ~broken_T, values_T, shown_T)
        broken_T |= breaks_T
        known_T |= recorded_T
    return broken_T, known_T, shown_T


def _judge_layers(block: Block, skipped_T: Bools) -> tuple[Bools, Bools, Floats]:
    shape_TL = (block.num_rows, block.num_layers)
    broken_TL = np.zeros(shape_TL, np.bool_)
    known_TL = np.zeros(shape_TL, np.bool_)
    shown_TL = np.full(shape_TL, np.nan)
    for name, spec in GUARDED_STATS.items():
        column = block.rows.stat_columns.get(name)
        if column is None:
            continue
        values_TL = np.ascontiguousarray(block.rows.stats[:, column, :])
        recorded_TL = ~is_absent(values_TL)
        is_fine_TL = values_TL <= 0.0 if spec.is_count else np.isfinite(values_TL)
        is_excused_T = skipped_T & (spec.source is Source.GRADIENT)
        breaks_TL = recorded_TL & ~is_fine_TL & ~is_excused_T[:, np.newaxis]
        shown_TL = np.where(breaks_TL & ~broken_TL, values_TL, shown_TL)
        broken_TL |= breaks_TL
        known_TL |= recorded_TL
    return broken_TL, known_TL, shown_TL
