"""Rules read a series under the name that a program gives it."""

from dataclasses import replace

from tests.core.rules.test_evaluator import rows_of, rules_of

from runwatch.rules import Evaluator, Rows, load_rules

HIGH = rules_of({"alert": "High", "when": "loss > 5"})
LEVEL = rules_of({"alert": "Level", "when": "loss > 5 and count(alternating > 0, 1) == 0"})


def named(name: str, values: list[float], first_step: int = 0, attempt: int = 1) -> Rows:
    rows = replace(rows_of(values, first_step=first_step), attempt=attempt)
    return replace(rows, metric_names=(name,))


def fired(evaluator: Evaluator, *rows: Rows) -> list[int]:
    return [told.step for part in rows for told in evaluator.observe(part)]


def test_an_alias_is_read_as_the_series() -> None:
    assert fired(Evaluator(HIGH), named("train/loss", [1.0, 9.0])) == [1]


def test_a_number_beside_a_series_of_that_name_is_not_read_as_it() -> None:
    rows = replace(
        rows_of([1.0, 1.0]),
        metric_names=("loss", "train_loss"),
        metrics=rows_of([1.0, 1.0]).metrics.repeat(2, axis=1) * [1.0, 9.0],
    )

    assert fired(Evaluator(HIGH), rows) == []


def test_the_own_name_of_a_series_replaces_an_alias_for_good() -> None:
    evaluator = Evaluator(HIGH)
    fired(evaluator, named("train_loss", [1.0]), named("loss", [1.0], 1))

    assert fired(evaluator, named("train_loss", [9.0], 2)) == []


def test_another_alias_does_not_replace_the_one_that_was_chosen() -> None:
    evaluator = Evaluator(HIGH)
    fired(evaluator, named("lm_loss", [1.0]))

    assert fired(evaluator, named("train_loss", [9.0], 1)) == []
    assert fired(evaluator, named("lm_loss", [9.0], 2)) == [2]


def test_the_choice_is_part_of_the_saved_state() -> None:
    before = Evaluator(HIGH)
    fired(before, named("lm_loss", [1.0]))
    after = Evaluator.restore(HIGH, before.state())

    assert fired(after, named("train_loss", [9.0], 1)) == []


def test_another_attempt_chooses_anew() -> None:
    evaluator = Evaluator(HIGH)
    fired(evaluator, named("lm_loss", [1.0]))

    assert fired(evaluator, named("train_loss", [9.0], 1, attempt=2)) == [1]


def test_a_rule_can_still_read_the_program_s_own_name() -> None:
    rule = {"alert": "Mine", "when": "train_loss > 5"}
    group = {"name": "tests", "rules": [rule]}
    rules = load_rules({"version": 1, "metrics": ["train_loss"], "groups": [group]})

    assert fired(Evaluator(rules), named("train/loss", [9.0])) == [0]


def test_a_reward_in_an_earlier_frame_tells_that_a_loss_has_no_level() -> None:
    evaluator = Evaluator(LEVEL)

    assert fired(evaluator, named("mean_reward", [1.0]), named("loss", [9.0], 1)) == []
    restored = Evaluator.restore(LEVEL, evaluator.state())
    assert fired(restored, named("loss", [9.0], 2)) == []


def test_what_a_run_records_of_its_turns_counts_more_than_names() -> None:
    rows = replace(
        rows_of([9.0]),
        metric_names=("loss", "reward", "alternating"),
        metrics=rows_of([9.0]).metrics.repeat(3, axis=1) * [1.0, 1.0, 0.0],
    )

    assert fired(Evaluator(LEVEL), rows) == [0]
