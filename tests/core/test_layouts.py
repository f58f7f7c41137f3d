"""A layout names every column once, and its hash names the layout."""

import pytest

from runwatch.errors import LayoutError
from runwatch.layouts import Layer, Layout

LAYOUT = Layout((Layer("a.weight", (2, 3), "float32", ("b.weight",)),), ("grad_norm",))


def test_a_document_gives_the_layout_back() -> None:
    assert Layout.from_document(LAYOUT.to_document()) == LAYOUT


def test_the_hash_depends_on_the_order_of_layers() -> None:
    there = Layout((Layer("a"), Layer("b")), ("grad_norm",))
    back = Layout((Layer("b"), Layer("a")), ("grad_norm",))

    assert there.hash != back.hash


def test_the_hash_is_stable_between_releases() -> None:
    # Stored runs are keyed by it: a change here orphans them.
    assert Layout((Layer("a", (2,), "float32"),), ("grad_norm",)).hash == (
        "581e0b2307f5df532a1012df27c6a53720cf33756a070abc4464920f39cd7ec3"
    )


def test_the_elements_of_a_layer_are_counted() -> None:
    assert (Layer("w", (2, 3, 4)).num_elements, Layer("scalar").num_elements) == (24, 1)


EMBEDDING = Layer("embedding.weight", (500, 8))
TIED = Layer("embedding.weight", (500, 8), "float32", ("head.weight",))
HEAD = Layer("head.weight", (6, 8))


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [
        ((EMBEDDING, HEAD), (6,)),
        ((EMBEDDING, HEAD, Layer("head.bias", (6,))), (6,)),
        ((TIED, Layer("norm.weight", (8,))), (8, 500)),
        ((HEAD, Layer("temperature")), ()),
        ((), ()),
    ],
)
def test_the_size_of_the_output_is_that_of_the_last_layer_or_of_a_tied_one(
    layers: tuple[Layer, ...], sizes: tuple[int, ...]
) -> None:
    assert Layout(layers, ("grad_norm",)).output_sizes == sizes


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "Expected `object`"),
        ({"layers": []}, "missing required field `stats`"),
        ({"layers": [{"name": "a"}, {"name": "a"}], "stats": []}, "layers: found 'a' twice"),
        ({"layers": [{"name": ""}], "stats": []}, r"layers\[0\]: found a name of 0 bytes"),
        ({"layers": [{"name": "a", "shape": [-1]}], "stats": []}, r"layers\[0\].shape"),
        ({"layers": [], "stats": [f"s{n}" for n in range(65)]}, "found 65, wanted at most 64"),
    ],
)
def test_a_broken_document_is_refused_with_its_place(document: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout.from_document(document)
