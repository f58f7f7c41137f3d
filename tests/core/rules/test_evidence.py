"""What can be seen around an onset: which series went first, what the learning rate did."""

import math

import numpy as np
import pytest

from runwatch.errors import RuleError
from runwatch.nonfinite import ABSENT_64
from runwatch.rules import load_rules
from runwatch.rules.diagnosis import Cause, Sign, rank
from runwatch.rules.evidence import (
    Recorded,
    began_at,
    departure,
    grew_before,
    layer_signs,
    lr_signs,
    order_signs,
    scaler_signs,
)

NOTHING = Recorded(np.empty(0, np.int64), np.empty(0))


def series(values: list[float], first_step: int = 0) -> Recorded:
    return Recorded(np.arange(first_step, first_step + len(values)), np.array(values))


def noisy(level: float, count: int) -> list[float]:
    return [level * (1.0 + 0.01 * math.sin(7.0 * step)) for step in range(count)]


def test_a_series_departs_at_the_first_step_that_is_far_from_its_past() -> None:
    found = departure(series([*noisy(2.0, 100), 2.0, 9.0, 9.0]), onset=102)

    assert found is not None
    assert (found.step, found.value) == (101, 9.0)
    assert found.before == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_no_number_departs_even_without_a_past(broken: float) -> None:
    found = departure(series([broken]), onset=0)

    assert found is not None
    assert found.step == 0


def test_a_series_that_stays_where_it_was_does_not_depart() -> None:
    assert departure(series(noisy(2.0, 100)), onset=90) is None
    assert departure(NOTHING, onset=90) is None


def test_a_small_excursion_that_was_over_before_the_onset_has_nothing_to_do_with_it() -> None:
    values = noisy(2.0, 120)
    values[104] = 3.0
    large = [*values]
    large[104] = 40.0

    assert departure(series(values), onset=115) is None
    found = departure(series(large), onset=115)
    assert found is not None
    assert found.step == 104


def test_what_was_not_recorded_has_not_left_its_past() -> None:
    values = np.full(160, ABSENT_64)
    values[::10] = 2.0  # a validation loss
    found = Recorded.of(np.arange(160), values)

    assert found.steps_N.tolist() == list(range(0, 160, 10))
    assert departure(found, onset=150) is None


def test_what_scatters_by_factors_has_not_left_its_past_by_one_factor_more() -> None:
    rng = np.random.default_rng(0)
    layers = np.exp(rng.normal(0.0, 0.5, (60, 160)))  # the gradient norms of sixty healthy layers

    left = [departure(series(norms.tolist()), onset=150) for norms in layers]

    assert sum(found is not None for found in left) <= 3
    exploded = departure(series([*layers[0, :149].tolist(), 60.0, 90.0]), onset=149)
    assert exploded is not None
    assert exploded.step == 149


def test_a_learning_rate_tells_of_its_jump_its_rise_and_its_end() -> None:
    jump = lr_signs(series([1e-3] * 50 + [4e-3] * 5), onset=52)
    rise = lr_signs(series([1e-5 * step for step in range(1, 101)]), onset=99)
    peak = lr_signs(series([1e-5 * step for step in range(1, 101)] + [1e-3] * 9), onset=108)

    assert jump[Sign.LR_JUMPED] == "the learning rate jumped from 0.001 to 0.004 at step 50"
    assert rise.keys() == {Sign.LR_ROSE}
    assert peak.keys() == {Sign.LR_ROSE, Sign.WARMUP_ENDED}
    assert lr_signs(series([0.0] * 9), onset=8).keys() == {Sign.LR_ZERO}
    assert lr_signs(series([1e-3] * 50), onset=40) == {}


def test_the_rate_of_another_group_tells_of_its_jump_only() -> None:
    still, jumps = series([1e-3] * 55), series([1e-4] * 50 + [3e-3] * 5)

    found = lr_signs(still, 52, {"lr.1": series([0.0] * 55), "lr.2": jumps})

    assert found == {Sign.LR_JUMPED: "lr.2 jumped from 1e-4 to 0.003 at step 50"}
    assert lr_signs(jumps, 52, {"lr.1": jumps})[Sign.LR_JUMPED].startswith("the learning rate ")
    assert lr_signs(still, 40, {"lr.1": jumps}) == {}  # not yet


def test_the_scaler_and_clipping_tell_what_they_did() -> None:
    found = scaler_signs(series([65536.0, 1024.0]), series([1.0, 1.0]), series([0.1] * 9), onset=8)

    assert found[Sign.SCALE_FELL] == "the loss scale fell from 65\u202f536 to 1\u202f024"
    assert {Sign.HALF_PRECISION, Sign.STEPS_SKIPPED, Sign.CLIPPED} <= found.keys()
    assert scaler_signs(NOTHING, NOTHING, NOTHING, onset=8).keys() == {Sign.UNCLIPPED}


def test_of_loss_and_gradient_the_earlier_went_first() -> None:
    loss = departure(series([*noisy(2.0, 100), 9.0]), onset=100)
    gradient = departure(series([*noisy(2.0, 99), 9.0]), onset=100)

    assert order_signs(loss, gradient, False).keys() == {Sign.GRADIENT_FIRST}
    assert order_signs(gradient, loss, False).keys() == {Sign.LOSS_FIRST}
    assert order_signs(None, None, True).keys() == {Sign.GRADIENT_GREW}


def test_of_one_step_a_loss_that_is_no_number_or_leapt_went_first() -> None:
    grown = departure(series([*noisy(2.0, 98), 2.45, 3.0, 9.0]), onset=100)
    leapt = departure(series([*noisy(2.0, 99), 9.0]), onset=99)
    broken = departure(series([*noisy(2.0, 99), math.nan]), onset=99)
    gradient = departure(series([*noisy(2.0, 99), 9.0]), onset=99)

    assert order_signs(grown, gradient, False) == {}
    assert order_signs(leapt, gradient, False).keys() == {Sign.LOSS_FIRST}
    assert order_signs(broken, gradient, False).keys() == {Sign.LOSS_FIRST}


def test_a_loss_that_leapt_after_a_jump_of_the_learning_rate_did_not_go_first() -> None:
    leapt = departure(series([*noisy(2.0, 99), 9.0]), onset=99)

    assert order_signs(leapt, leapt, False, lr_jumped=True) == {}


def test_a_leap_that_nothing_has_made_good_is_where_it_began_however_late_the_onset() -> None:
    leapt = series([*noisy(2.0, 200), *noisy(3.7, 120)])

    assert [began_at(leapt, onset) for onset in (200, 230, 233, 250, 300)] == [
        200,
        230,
        200,
        200,
        200,
    ]


def test_what_is_no_leap_or_was_made_good_is_not_where_it_began() -> None:
    healed = series([*noisy(2.0, 200), *noisy(3.7, 20), *noisy(2.0, 100)])
    fell = series([*noisy(2.0, 200), *noisy(0.7, 120)])
    crept = series([*noisy(2.0, 200), *[2.0 * 1.005**step for step in range(120)]])

    assert [began_at(one, 260) for one in (healed, fell, crept, NOTHING)] == [260] * 4


def test_a_gradient_that_doubled_before_the_onset_had_been_growing() -> None:
    assert grew_before(series([1.03**step for step in range(100)]), onset=90)
    assert not grew_before(series(noisy(1.0, 100)), onset=90)


def test_layers_speak_by_their_number_and_their_names() -> None:
    assert layer_signs("wte.weight", 1, 40).keys() == {Sign.ONE_LAYER, Sign.EMBEDDING}
    assert layer_signs("h.0.attn.c", 40, 40).keys() == {Sign.ALL_LAYERS, Sign.ATTENTION}
    assert layer_signs(None, 0, 40) == {}


def test_the_cause_with_the_most_signs_comes_first_and_ties_keep_the_author_s_order() -> None:
    causes = (Cause("a"), Cause("b", (Sign.LR_ROSE,)), Cause("c", (Sign.RESUMED,)))
    ranked = rank(causes, {Sign.LR_ROSE: "it rose", Sign.RESUMED: "it resumed"})

    assert [(one.text, one.evidence) for one in ranked] == [
        ("b", ("it rose",)),
        ("c", ("it resumed",)),
        ("a", ()),
    ]


def test_a_diagnosis_that_names_an_unknown_sign_is_refused_with_its_place() -> None:
    diagnosis = {"causes": [{"cause": "x", "signs": ["full_moon"]}], "try_first": "{moon}"}
    rule = {"alert": "A", "when": "loss > 1", "diagnosis": diagnosis}
    with pytest.raises(RuleError) as caught:
        load_rules({"version": 1, "groups": [{"name": "g", "rules": [rule]}]})

    faults = [str(fault) for fault in caught.value.faults]
    assert len(faults) == 2
    assert "diagnosis.causes[0].signs[0]" in faults[0]
    assert "diagnosis.try_first" in faults[1]
