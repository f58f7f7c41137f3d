"""What holds of rules that explain each other in any way, over any losses."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rules.test_inhibition import rows_of, rule, rules_of

from runwatch.alerts import AlertState
from runwatch.rules import Evaluator, Rule, Transition

NAMES = ("One", "Two", "Three", "Four")


@st.composite
def rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    """Four, of which each may name any of the others."""
    return rules_of(*(draw(_rule(name)) for name in NAMES))


@st.composite
def _rule(draw: st.DrawFn, name: str) -> dict[str, object]:
    others = [other for other in NAMES if other != name]
    by = draw(st.lists(st.sampled_from(others), min_size=1, unique=True))
    within = {"steps": draw(st.sampled_from((2, 5, 20)))}
    severity = draw(st.sampled_from(("warning", "critical")))
    written = rule(
        name,
        f"loss > {draw(st.integers(1, 4))}",
        by=[{"rules": by, "within": within}],
        severity=severity,
    )
    held = {"steps": draw(st.sampled_from((0, 3)))}
    return {**written, "for": held, "keep_firing_for": {"steps": draw(st.sampled_from((0, 6)))}}


def losses() -> st.SearchStrategy[list[float]]:
    """Levels that last for some rows; at the end all is well for long."""
    level = st.tuples(st.sampled_from((0.0, 1.5, 2.5, 3.5, 4.5)), st.integers(1, 12))
    levels = st.lists(level, min_size=1, max_size=12)
    return levels.map(lambda found: [loss for loss, num in found for _ in range(num)] + [0.0] * 12)


def open_after(transitions: list[Transition], step: int) -> dict[str, str | None]:
    """The open alerts by their rules, each with what explains it."""
    found: dict[str, str | None] = {}
    for one in transitions:
        if one.step <= step and one.state.is_open:
            found[one.rule] = one.inhibited_by
        elif one.step <= step and one.state is AlertState.RESOLVED:
            del found[one.rule]
    return found


def is_hidden_by_itself(name: str, found: dict[str, str | None]) -> bool:
    seen: set[str] = set()
    by = found[name]
    while by is not None and by not in seen:
        seen.add(by)
        by = found.get(by)
    return name in seen


@settings(max_examples=60, deadline=None)
@given(rules(), losses())
def test_no_alerts_hide_behind_each_other_and_each_ends(
    given_rules: tuple[Rule, ...], given_losses: list[float]
) -> None:
    transitions = Evaluator(given_rules).observe(rows_of(given_losses))

    for step in range(len(given_losses)):
        found = open_after(transitions, step)
        assert not any(is_hidden_by_itself(name, found) for name in found)
    assert open_after(transitions, len(given_losses)) == {}


@settings(max_examples=30, deadline=None)
@given(rules(), losses(), st.integers(1, 100))
def test_it_makes_no_difference_where_the_evaluator_is_saved(
    given_rules: tuple[Rule, ...], given_losses: list[float], place: int
) -> None:
    place = min(place, len(given_losses))
    evaluator = Evaluator(given_rules)
    parts = evaluator.observe(rows_of(given_losses[:place]))
    restored = Evaluator.restore(given_rules, evaluator.state())
    parts += restored.observe(rows_of(given_losses[place:], first_step=place))

    assert parts == Evaluator(given_rules).observe(rows_of(given_losses))
