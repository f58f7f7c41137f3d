"""Rule documents: read whole, or refused with all that is wrong with them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.rules.builtin_pack import pack

from runwatch.alerts import Span
from runwatch.commands import LowerLr, Rollback, Stop
from runwatch.errors import Fault, RuleError
from runwatch.ladders import Page
from runwatch.rules import Baseline, Rule, load_rules
from runwatch.vocabulary import Scope, Severity

Document = dict[str, object]

NOTHING: Document = {}


def document(*rules: Document, **fields: object) -> Document:
    return {"version": 1, "groups": [{"name": "g", "rules": list(rules)}], **fields}


def rule(**fields: object) -> Document:
    return {"alert": "A", "when": "loss > 3", **fields}


def faults(parsed: object) -> tuple[Fault, ...]:
    with pytest.raises(RuleError) as caught:
        load_rules(parsed)
    return caught.value.faults


def test_a_whole_rule_is_read() -> None:
    (read,) = load_rules(
        document(
            rule(
                scope="layer",
                when="grad_norm > 10 * median(grad_norm, 128)",
                min_history=64,
                baseline="clean",
                relearn_after=9,
                severity="critical",
                labels={"team": "pretraining"},
                annotations={"summary": "{value:.3g}", "runbook": "docs/x.md"},
                actions=[{"rollback": NOTHING}, {"lower_lr": {"scale": 0.5}}],
                ladder=[{"lower_lr": {"scale": 0.25}}, {"stop": NOTHING}, {"page": NOTHING}],
                **{"for": {"steps": 2}, "keep_firing_for": {"seconds": 1.5}},
            )
        )
    )

    assert (read.name, read.scope, read.severity) == ("A", Scope.LAYER, Severity.CRITICAL)
    assert (read.for_, read.keep_firing_for) == (Span(steps=2), Span(seconds=1.5))
    assert (read.baseline, read.relearn_after, read.min_history) == (Baseline.CLEAN, 9, 64)
    assert read.actions == (Rollback(), LowerLr(0.5))
    assert read.ladder == (LowerLr(0.25), Stop(), Page())
    assert read.annotations == {"summary": "{value:.3g}", "runbook": "docs/x.md"}


def read_again(read: Rule) -> Rule:
    return load_rules(document(dict(read.document)))[0]


@pytest.mark.parametrize("read", pack(), ids=lambda r: r.name)
def test_a_rule_is_the_same_when_read_from_its_own_document(read: Rule) -> None:
    again = read_again(read)

    assert (again.document, again.hash, again.when) == (read.document, read.hash, read.when)


@pytest.mark.parametrize(
    ("parsed", "place", "words"),
    [
        (None, "document", "wanted a mapping"),
        ([], "document", "wanted a mapping"),
        ({"groups": []}, "version", "wanted 1"),
        ({"version": 2, "groups": []}, "version", "found 2"),
        ({"version": 1}, "groups", "found nothing"),
        ({"version": 1, "groups": {}}, "groups", "wanted a list"),
        ({"version": 1, "groups": [], "gruops": 1}, "gruops", "nearest: groups"),
        (document(metrics=["a b"]), "metrics[0]", "letters"),
        (document(rule(alert="")), "groups[0].rules[0].alert", "wanted a text"),
        (document(rule(alert="a-b")), "groups[0].rules[0].alert", "wanted a letter"),
        (document(rule(alert="NonFinite")), "groups[0].rules[0].alert", "built in"),
        (document(rule(), rule()), "document", "two rules of the name A"),
        (document({"alert": "A"}), "groups[0].rules[0]", "either `when` or `absence`"),
        (document(rule(absence={})), "groups[0].rules[0]", "either `when` or `absence`"),
        (document(rule(scope="layers")), "groups[0].rules[0].scope", "run, layer, rank"),
        (document(rule(severity=1)), "groups[0].rules[0].severity", "info, warning"),
        (document(rule(min_history=0)), "groups[0].rules[0].min_history", "1 to 4096"),
        (document(rule(min_history=True)), "groups[0].rules[0].min_history", "whole number"),
        (document(rule(whem="x")), "groups[0].rules[0].whem", "nearest: when"),
        (document(rule(**{"for": 3})), "groups[0].rules[0].for", "wanted a mapping"),
        (document(rule(**{"for": NOTHING})), "groups[0].rules[0].for", "steps"),
        (document(rule(**{"for": {"steps": -1}})), "groups[0].rules[0].for.steps", "0 to"),
        (document(rule(**{"for": {"rows": 1.5}})), "groups[0].rules[0].for.rows", "whole number"),
        (document(rule(**{"for": {"steps": 2, "rows": 2}})), "groups[0].rules[0].for", "one of"),
        (
            document(rule(**{"for": {"seconds": float("nan")}})),
            "groups[0].rules[0].for.seconds",
            "found nan",
        ),
        (document(rule(every="lss")), "groups[0].rules[0].every", "known metric"),
        (document(rule(baseline="clean")), "groups[0].rules[0].baseline", "without a window"),
        (document(rule(relearn_after=3)), "groups[0].rules[0].relearn_after", "clean"),
        (document(rule(labels={"severity": "x"})), "groups[0].rules[0].labels.severity", "none of"),
        (document(rule(labels={"a": 1})), "groups[0].rules[0].labels.a", "wanted a text"),
        (
            document(rule(annotations={"summary": "{x.y}"})),
            "groups[0].rules[0].annotations.summary",
            "placeholder",
        ),
        (
            document(rule(actions=[{"explode": NOTHING}])),
            "groups[0].rules[0].actions[0]",
            "found 'explode', wanted one of checkpoint, detail, lower_lr, rollback, stop",
        ),
        (document(rule(actions=["stop"])), "groups[0].rules[0].actions[0]", "mapping"),
        (
            document(rule(actions=[{"lower_lr": {"scale": 2}}])),
            "groups[0].rules[0].actions[0]",
            "at most 1",
        ),
        (
            document(rule(ladder=[{"checkpoint": NOTHING}])),
            "groups[0].rules[0].ladder[0]",
            "found 'checkpoint', wanted one of lower_lr, rollback, stop, page",
        ),
        (
            document(rule(ladder=[{"page": NOTHING}, {"stop": NOTHING}])),
            "groups[0].rules[0].ladder[0]",
            "wanted it last",
        ),
        (
            document(rule(ladder=[{"stop": NOTHING}, {"rollback": NOTHING}])),
            "groups[0].rules[0].ladder[0]",
            "nothing after it but page",
        ),
        (
            document({"alert": "A", "absence": {"timeout_s": 60}, "ladder": [{"page": NOTHING}]}),
            "groups[0].rules[0].ladder",
            "absence rule",
        ),
        (
            document({"alert": "A", "absence": {"timeout_s": 0}}),
            "groups[0].rules[0].absence.timeout_s",
            "1 to",
        ),
        (
            document({"alert": "A", "absence": {}, "for": {"steps": 3}}),
            "groups[0].rules[0].for.steps",
            "wanted seconds",
        ),
        (
            document({"alert": "A", "absence": {}, "keep_firing_for": {"rows": 3}}),
            "groups[0].rules[0].keep_firing_for.rows",
            "wanted seconds",
        ),
    ],
)
def test_a_bad_document_is_refused_with_the_place(parsed: object, place: str, words: str) -> None:
    found = faults(parsed)

    assert place in [fault.place for fault in found]
    assert any(words in fault.message for fault in found)


def test_all_faults_are_found_at_once_with_place_and_column() -> None:
    found = faults(
        document(
            rule(when="loss > median(loss, 1000000000)", severity="loud"),
            rule(alert="B", when="los > 3"),
        )
    )

    assert [(fault.place, fault.column) for fault in found] == [
        ("groups[0].rules[0].when", 21),
        ("groups[0].rules[0].severity", None),
        ("groups[0].rules[1].when", 1),
    ]


def test_ones_own_metrics_are_known_once_they_are_listed() -> None:
    assert load_rules(document(rule(when="win_rate < 0"), metrics=["win_rate"]))
    assert load_rules(document(rule(when="win_rate < 0")), metrics=["win_rate"])
    assert faults(document(rule(when="win_rate < 0")))[0].column == 1


def test_windows_that_would_fill_the_memory_are_refused() -> None:
    big = [
        rule(alert=f"A{size}", scope="layer", when=f"grad_norm > median(grad_norm, {size})")
        for size in (4000, 4001)
    ]

    (fault,) = faults(document(*big))

    assert "122 MiB" in fault.message


def test_two_hundred_rules_are_the_most() -> None:
    many = [rule(alert=f"A{index}") for index in range(201)]

    assert faults(document(*many))[0].place.endswith("rules")


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_names = st.sampled_from(
    ["version", "groups", "rules", "name", "alert", "when", "scope", "for", "steps", "labels",
     "annotations", "summary", "actions", "absence", "phases", "metrics", "every"]
)  # fmt: skip
_parsed = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names | _scalars, inner),
    max_leaves=20,
)


@given(_parsed)
def test_no_document_makes_the_loader_stumble(parsed: object) -> None:
    with suppress(RuleError):
        assert isinstance(load_rules(parsed), tuple)
