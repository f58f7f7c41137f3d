"""Layers of several layouts as the columns of one table."""

import pytest

from runwatch.layouts import MAX_LAYERS, Layer, Layout
from runwatch_server.telemetry.layer_union import columns_among, targets_of, united


def layout(*names: str) -> Layout:
    return Layout(tuple(Layer(name) for name in names), ("grad_norm",))


@pytest.mark.parametrize(
    ("layouts", "wanted"),
    [
        ([layout("a", "b")], "a b"),
        ([layout("b"), layout("a", "b", "c")], "a b c"),
        ([layout("a", "x", "y", "b"), layout("a", "b")], "a x y b"),
        ([layout("x", "a"), layout("a", "b")], "x a b"),
        ([layout("b", "a"), layout("a", "b")], "a b"),
        ([layout("a", "x"), layout("a", "y"), layout("a")], "a x y"),
    ],
)
def test_a_layer_of_an_older_layout_stands_behind_the_one_that_it_stood_behind(
    layouts: list[Layout], wanted: str
) -> None:
    assert united(layouts) == tuple(wanted.split())


def test_each_layout_knows_its_columns() -> None:
    old, new = layout("b", "x"), layout("a", "b")
    names = united([old, new])

    targets = targets_of([old, new], names)

    assert names == ("a", "b", "x")
    assert {key: None if one is None else one.tolist() for key, one in targets.items()} == {
        old.hash: [1, 2],
        new.hash: [0, 1],
    }
    assert targets_of([new], united([new])) == {new.hash: None}
    assert columns_among(names, ["x", "a"]).tolist() == [0, 2]


def test_names_that_change_with_each_layout_do_not_fill_the_memory() -> None:
    many = [layout(*(f"{index}.{name}" for name in range(MAX_LAYERS // 2))) for index in range(4)]

    names = united(many)

    assert len(names) == MAX_LAYERS
    assert targets_of(many, names).keys() == {many[2].hash, many[3].hash}
