"""Decides which series an alert's card draws: those that its rule judges. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.aliases import resolve
from runwatch.layouts import Layout
from runwatch.rules import NON_FINITE, Rule
from runwatch.rules import expressions as tree
from runwatch.rules.nonfinite_rule import (
    NON_FINITE_EVALUATION,
    is_loss,
    is_of_evaluation,
)
from runwatch.rules.observations import columns_by_name
from runwatch.vocabulary import Scope
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.page.chart_list import charts_of

MOST_CURVES: Final = 3
_SAYS_WHICH_ROWS: Final = "alternating"
"""A rule reads it only to leave rows out; it is not worth a curve."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as it is stored: a metric of the run, or a stat of a layer."""

    name: str
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class _Named:
    """A series as a rule writes it."""

    name: str
    of_layers: bool


def curves_of(
    alert: AlertRecord, rule: Rule | None, metrics: Sequence[str], layouts: Sequence[Layout]
) -> list[Curve]:
    """The series of the alert's value, and the others that its rule reads, of the layer in which
    the alert began. `metrics` and `layouts` are what the run has recorded; `rule` is None if no
    rule of that name is in force any more.

    A rule that judges no series, such as a rule about silence, gets the loss, or else the series
    that is looked at first.
    """
    layer = alert.facts.first_layer or alert.facts.worst_layer
    stats = {stat for layout in layouts if layer in layout.layer_names for stat in layout.stats}
    columns = columns_by_name(tuple(metrics))
    columns |= {ours: columns[theirs] for ours, theirs in resolve(metrics).items()}

    def stored(named: _Named) -> Curve | None:
        if named.of_layers and named.name in stats:
            return Curve(named.name, layer)
        return Curve(metrics[columns[named.name]]) if named.name in columns else None

    if alert.rule == NON_FINITE.name:
        wanted = _of_non_finite(metrics, alert.facts.first_layer, has_layer=bool(stats))
    elif alert.rule == NON_FINITE_EVALUATION.name:
        evaluated = [name for name in metrics if is_loss(name) and is_of_evaluation(name)]
        wanted = [_Named(name, of_layers=False) for name in [*evaluated, "loss"]]
    else:
        wanted = [] if rule is None else list(_of_rule(rule))
    found = [curve for named in wanted if (curve := stored(named)) is not None]
    if not found:
        found = [Curve(chart.metrics[0]) for chart in charts_of(metrics)[:1]]
    return list(dict.fromkeys(found))[:MOST_CURVES]


def _of_non_finite(
    metrics: Sequence[str], first_layer: str | None, *, has_layer: bool
) -> list[_Named]:
    """The series of a NonFinite alert. Where it began comes first: in a layer, or else in the
    loss."""
    losses = sorted(filter(is_loss, metrics), key=lambda name: (name != "loss", name))
    gradients = [_Named(name, has_layer) for name in ("grad_norm", "nonfinite")]
    run = [_Named(name, of_layers=False) for name in losses[:1]]
    return [*gradients, *run] if has_layer and first_layer else [*run, *gradients]


def _of_rule(rule: Rule) -> Iterator[_Named]:
    if rule.when is None:
        return
    subject, _ = tree.subject_of(rule.when)
    for node in (subject, rule.when):
        yield from _read(node, of_layers=rule.scope is Scope.LAYER)


def _read(node: tree.Expression, *, of_layers: bool) -> Iterator[_Named]:
    """The series of a tree, from left to right."""
    if isinstance(node, tree.Series) and node.name != _SAYS_WHICH_ROWS:
        yield _Named(node.name, of_layers)
    for child in tree.children(node):
        yield from _read(child, of_layers=of_layers or isinstance(node, tree.AcrossLayers))
