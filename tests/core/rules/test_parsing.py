"""A rule's text: what it may say, and what is said to whom it may not."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.errors import Fault
from runwatch.rules.expressions import (
    AcrossFunction,
    CheckFunction,
    ElementwiseFunction,
    render,
)
from runwatch.rules.functions import FUNCTIONS, Kind
from runwatch.rules.limits import MAX_TEXT_CHARS
from runwatch.rules.parsing import Parsed, parse_condition
from runwatch.vocabulary import Scope


def parse(text: str, scope: Scope = Scope.RUN) -> Parsed:
    return parse_condition(text, place="when", scope=scope, announced=frozenset(("reward",)))


def only_fault(text: str, scope: Scope = Scope.RUN) -> Fault:
    (fault,) = parse(text, scope).faults
    return fault


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("loss > 3", "(loss > 3.0)"),
        ("  not isfinite(loss)", "not (isfinite(loss))"),
        ("loss > 3\nor loss < -1", "((loss > 3.0) or (loss < -(1.0)))"),
        ("delta(loss) > 1", "((loss - prev(loss, 1)) > 1.0)"),
        ("delta(loss, 3) > 1", "((loss - prev(loss, 3)) > 1.0)"),
        ("quantile(loss, 0.9, 16) > 1", "(quantile(loss, 0.9, 16) > 1.0)"),
        ("count(loss > 1, 8) >= 3", "(count((loss > 1.0), 8) >= 3.0)"),
        ("where(lr > 0, loss, +reward) > 1", "(where((lr > 0.0), loss, reward) > 1.0)"),
        ("max_layers(grad_norm) > lr_12", "(max_layers(grad_norm) > lr_12)"),
        ("gpu_temp_1 > gpu_temp", "(gpu_temp_1 > gpu_temp)"),
        ("step > 10 and lr == 0", "((step > 10.0) and (lr == 0.0))"),
    ],
)
def test_a_condition_becomes_a_tree(text: str, tree: str) -> None:
    condition = parse(text).condition

    assert condition is not None
    assert render(condition) == tree


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "wanted an expression"),
        ("(((1)))", 4, "wanted a condition"),
        ("loss", 1, "found loss, wanted a condition"),
        ("1 > 0", 1, "found no series"),
        ("loss > medain(loss, 8)", 8, "nearest: median"),
        ("los > 3", 1, "nearest: loss"),
        ("loss > qqqqqqqq(loss)", 8, "wanted one of median"),
        ("median(loss, 1000000000) > 3", 14, "1 to 4096"),
        ("median(loss, 0) > 3", 14, "1 to 4096"),
        ("std(loss, 1) > 3", 11, "2 to 4096"),
        ("median(loss, 3.0) > 3", 14, "whole constant"),
        ("median(loss, True) > 3", 14, "found"),
        ("median(loss, lr) > 3", 14, "found the window lr"),
        ("median(loss) > 3", 1, "found 1 arguments"),
        ("median(loss, n=3) > 3", 14, "named argument"),
        ("quantile(loss, 1.5, 8) > 3", 16, "between 0 and 1"),
        ("1 < loss < 3", 5, "chain"),
        ("loss in lr", 1, "operator In"),
        ("loss is lr", 1, "operator Is"),
        ("loss ** 9 > 1", 1, "operator Pow"),
        ("loss // 2 > 1", 1, "operator FloorDiv"),
        ("loss > True", 8, "finite number"),
        ("loss > 1e999", 8, "finite number"),
        ("loss > 1j", 8, "finite number"),
        ("1" * 900 + " > loss", 1, "a huge number"),
        ("loss.real > 1", 1, "attribute"),
        ("loss.__class__.__base__ > 1", 1, "attribute"),
        ("__import__(os) > 1", 1, "unknown function"),
        ("loss()() > 1", 1, "found a call of"),
        ("loss > (lambda)", 15, "wanted an expression"),
        ("loss > 'text'", 8, "found \"'\""),
        ("loss > [1][0]", 8, "found '['"),
        ("(loss := 3) > 1", 7, "found ':'"),
        ("f{loss} > 1", 2, "found '{'"),
        ("lоss > 1", 2, "found 'о'"),  # a Cyrillic letter
        ("loss\x00 > 1", 5, "found '\\x00'"),
        ("loss > 5 if lr else 2", 1, "this ifexp"),
        ("loss > (1, 2)", 8, "this tuple"),
        ("isnan(isnan(loss))", 7, "wanted a number"),
        ("not loss", 5, "wanted a condition"),
        ("zero_frac > 0.5", 1, "max_layers(zero_frac)"),
        ("rank_of(grad_norm) > 3", 1, "scope: layer"),
        ("max_layers(loss) > 3", 12, "no stat of a layer"),
        ("(" * 300, 201, "too many nested parentheses"),
        ("-" * 1000 + "loss", 21, "depth"),
        ("not " * 200 + "loss", 81, "depth"),
        ("loss > 1" + " or loss > 1" * 80, 793, "number of parts"),
        ("loss" * 400, 1025, "at most 1024"),
    ],
)  # fmt: skip
def test_what_a_rule_may_not_say_is_refused_with_its_column(
    text: str, column: int, words: str
) -> None:
    fault = only_fault(text)

    assert (fault.place, fault.column) == ("when", column)
    assert words in fault.message
    assert len(fault.message) < 600


def test_all_faults_of_a_text_are_found_at_once() -> None:
    faults = parse("median(loss, 10000) > los and medain(loss, 3) > 1j").faults

    assert [fault.column for fault in faults] == [14, 23, 31, 49]


def test_a_thirteenth_window_is_one_too_many() -> None:
    windows = [f"median(loss, {size}) > 1" for size in range(1, 14)]

    assert parse(" and ".join(windows[:12])).condition is not None
    assert only_fault(" and ".join(windows)).column == 292


def test_a_rule_over_layers_must_read_what_layers_have() -> None:
    assert "differs between layers" in only_fault("loss > 3", Scope.LAYER).message
    assert "differs" in only_fault("max_layers(grad_norm) > 3", Scope.LAYER).message
    assert parse("rank_of(grad_norm) > 3", Scope.LAYER).condition is not None


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (Kind.ACROSS, AcrossFunction),
        (Kind.CHECK, CheckFunction),
        (Kind.ELEMENTWISE, ElementwiseFunction),
    ],
)
def test_the_tree_knows_each_function_that_can_be_called(kind: Kind, known: object) -> None:
    called = {name for name, function in FUNCTIONS.items() if function.kind is kind}

    assert called == set(get_args(known))


@given(st.text(max_size=1200))
def test_no_text_makes_the_parser_stumble(text: str) -> None:
    parsed = parse(text)

    assert (parsed.condition is None) == bool(parsed.faults)


_WORDS = st.sampled_from(
    [*FUNCTIONS, "loss", "lr", "(", ")", ",", "and", "or", "not", ">", "<", "==", "+", "-", "*",
     "/", "1", "8", "0.5", "1e9", " ", "if", "is", "in", "lambda"]
)  # fmt: skip


@given(st.lists(_WORDS, max_size=120).map(" ".join))
def test_no_heap_of_words_makes_the_parser_stumble(text: str) -> None:
    parsed = parse(text)

    assert (parsed.condition is None) == bool(parsed.faults)


@pytest.mark.parametrize("text", ["(" * 10**6, "-" * 10**6 + "loss", "loss<" * 10**6, "9" * 10**6])
def test_a_huge_text_is_refused_before_it_is_parsed(text: str) -> None:
    fault = only_fault(text)

    assert fault.message == f"found {len(text)} characters, wanted at most {MAX_TEXT_CHARS}"
