"""Which layers `runwatch tail` shows first."""

from runwatch.nonfinite import JsonNumber
from runwatch_server.cli.worst_layers import MOST_LAYERS, worst_layers

LEVEL: list[JsonNumber] = [1.0, 1.0, 1.0, 1.0]


def test_a_broken_layer_goes_before_one_that_grew() -> None:
    values: list[list[JsonNumber]] = [LEVEL, [1.0, 1.0, 1.0, 50.0], [2.0, 2.0, 2.0, 0.0]]

    found = worst_layers("grad_norm", ["a", "b", "c"], values, [[0, 0], [0, 0], [0, 3]])

    assert [(layer.layer, layer.value) for layer in found] == [
        ("c", "NaN"),
        ("b", 50.0),
        ("a", 1.0),
    ]
    assert [layer.times_usual for layer in found] == [None, 50.0, 1.0]


def test_a_layer_that_is_no_longer_measured_is_left_out() -> None:
    values: list[list[JsonNumber]] = [LEVEL, [1.0, 1.0, 1.0, None]]

    assert [layer.layer for layer in worst_layers("grad_norm", ["a", "b"], values, [])] == ["a"]


def test_what_was_never_above_zero_has_no_usual() -> None:
    (layer,) = worst_layers("grad_norm", ["a"], [[0.0, 0.0, 5.0]], [])

    assert layer.times_usual is None


def test_the_first_step_is_shown_and_a_run_without_layers_has_none() -> None:
    (layer,) = worst_layers("grad_norm", ["a"], [["+Inf"]], [])

    assert layer.value == "+Inf"
    assert worst_layers("grad_norm", [], [], []) == []


def test_no_more_than_fit_are_shown() -> None:
    names = [f"blocks.{index}" for index in range(100)]

    assert len(worst_layers("grad_norm", names, [LEVEL] * 100, [])) == MOST_LAYERS
