"""From a change of state to a transition: whom an alert names, what it shows, what it says."""

import numpy as np

from runwatch.alerts import Alert, AlertState, Change, Moment
from runwatch.number_texts import counted
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.expressions import Comparison
from runwatch.rules.rule import Rule
from runwatch.rules.templates import Facts, Template
from runwatch.rules.transitions import MAX_LAYERS_NAMED, Transition, episode_id
from runwatch.rules.windows import Bools, Floats
from runwatch.vocabulary import Phase, Scope


def labels_of(rule: Rule, rank: int) -> dict[str, str]:
    """A rule's labels; with the rank where the rule is about ranks, or where another rank than
    the first speaks."""
    labels = dict(rule.labels)
    if rule.scope is Scope.RANK or rank != 0:
        labels["rank"] = str(rank)
    return labels


def excess(comparison: Comparison | None, shown: Floats, limit: Floats) -> Floats:
    """How far beyond its limit each value is; the larger, the worse. NaN is worst."""
    if comparison is None:
        ratio = np.abs(shown)
    elif comparison.operator in ("<", "<="):
        ratio = np.abs(limit) / np.abs(shown)
    else:
        ratio = np.abs(shown) / np.abs(limit)
    return np.asarray(np.where(np.isnan(ratio), np.inf, ratio))


def name_layers(
    names: tuple[str, ...], failing_L: Bools, began_L: Bools, excess_L: Floats, *, backward: bool
) -> Culprits:
    """The failing layers, worst first, and the one where it began.

    Of those that broke at the onset, a `backward` rule blames the layer nearest to the loss:
    gradients run from there to the first layer, and take the fault along. Otherwise the layer
    nearest to the input is to blame. A column without a name stands for the run.

    A weight's gradient is what came down from the loss times what came up from the input; the
    gradient of the bias beside it is the former alone. So a weight that fails beside a bias that
    does not was given a bad input: another layer is to blame, where another fails.
    """
    columns = [int(column) for column in np.flatnonzero(failing_L) if names[int(column)]]
    worst_first = sorted(columns, key=lambda column: -float(excess_L[column]))
    began = [int(column) for column in np.flatnonzero(began_L) if names[int(column)]] or columns
    if not columns:
        return Culprits()
    if backward:
        began = _without_bad_inputs(names, failing_L, began)
    return Culprits(
        first=names[max(began) if backward else min(began)],
        worst=names[worst_first[0]],
        layers=tuple(names[column] for column in worst_first[:MAX_LAYERS_NAMED]),
        num_layers=len(columns),
    )


def _without_bad_inputs(names: tuple[str, ...], failing_L: Bools, began: list[int]) -> list[int]:
    """Columns without the weights whose bias has a sound gradient; all, if none were left."""
    if len(began) == 1:
        return began
    place = {name: column for column, name in enumerate(names)}
    to_blame = [
        column
        for column in began
        if (bias := place.get(_bias_beside(names[column]))) is None or failing_L[bias]
    ]
    return to_blame or began


def _bias_beside(name: str) -> str:
    """`block.up.weight`: `block.up.bias`, `lstm.weight_hh_l0`: `lstm.bias_hh_l0`."""
    module, dot, parameter = name.rpartition(".")
    return f"{module}{dot}{parameter.replace('weight', 'bias', 1)}"


def transition(
    rule: Rule,
    change: Change,
    before: Alert | None,
    episode: Episode,
    now: Moment,
    rank: int,
    *,
    phase: Phase = Phase.TRAIN,
    where: str = "",
) -> Transition:
    """What to tell of a change; `before` is the alert that it ended, if it ended one. `phase` is
    what the rank is busy with: rows come from training alone, silence from any. `where` says at
    which place a run stands that makes no step."""
    alert = change.alert or before
    assert alert is not None
    labels = labels_of(rule, rank)
    facts = {
        **_facts(rule, alert, episode, now, rank),
        "phase": phase.value,
        "where": f": {where}" if where else "",
    }
    return Transition(
        rule=rule.name,
        severity=rule.severity,
        labels=labels,
        state=AlertState.INACTIVE if change.alert is None else change.alert.state,
        reason=change.reason,
        attempt=episode.attempt,
        segment=episode.segment,
        step=now.step,
        at=now.at,
        onset_step=alert.onset.step,
        onset_at=alert.onset.at,
        value=episode.value,
        first_layer=episode.culprits.first,
        worst_layer=episode.culprits.worst,
        layers=episode.culprits.layers,
        num_layers=episode.culprits.num_layers,
        summary=rule.summary.render(facts) or rule.name,
        description=_describe(rule, facts),
        runbook=rule.runbook,
        causes=rule.diagnosis.causes,
        try_first=rule.diagnosis.try_first.render(facts),
        worked_if=rule.diagnosis.worked_if.render(facts),
        actions=rule.actions,
        ladder=rule.ladder,
        peak=episode.peak,
        widest=episode.widest,
        shadow=rule.shadow,
        episode=episode_id(
            rule.name,
            labels,
            attempt=episode.attempt,
            segment=episode.segment,
            onset_step=alert.onset.step,
        ),
    )


def _describe(rule: Rule, facts: Facts) -> str:
    """What the rule's author wrote, and what its diagnosis says."""
    texts = (rule.description, Template(rule.diagnosis.words))
    return " ".join(text for text in (one.render(facts) for one in texts) if text)


def _facts(rule: Rule, alert: Alert, episode: Episode, now: Moment, rank: int) -> Facts:
    return {
        "value": episode.value,
        "step": now.step,
        "onset_step": alert.onset.step,
        "num_layers": episode.culprits.num_layers,
        "attempt": episode.attempt,
        "segment": episode.segment,
        "rank": rank,
        "rule": rule.name,
        "severity": rule.severity.value,
        "first_layer": episode.culprits.first or "the run",
        "worst_layer": episode.culprits.worst or "the run",
        "layers": ", ".join(episode.culprits.layers),
        "in_layers": _in_layers(episode.culprits.num_layers),
        "named": episode.culprits.named,
        "origin": episode.culprits.origin or episode.culprits.first or "the run",
        "spread": _spread(episode.culprits),
    }


def _spread(culprits: Culprits) -> str:
    return f"{culprits.spread}; {culprits.why}" if culprits.why else culprits.spread


def _in_layers(num_layers: int) -> str:
    """With the blank before it; nothing where no layer fails."""
    return f" in {counted(num_layers, 'layer')}" if num_layers else ""
