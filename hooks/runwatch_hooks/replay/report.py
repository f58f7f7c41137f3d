"""The result of a replay, as text and as JSON."""

import msgspec

from runwatch.nonfinite import JsonNumber, to_json
from runwatch_hooks.bundles import Bundle
from runwatch_hooks.replay.lineage import Birth
from runwatch_hooks.replay.rerun import Finding


class _Culprit(msgspec.Struct, frozen=True):
    phase: str
    module: str
    module_type: str
    operation: str
    backward_function: str
    line: str
    kind: str


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    bundle: str
    step: int
    state_after_step: int
    losses: list[JsonNumber]
    reproduced: bool
    broken: str
    culprit: _Culprit | None
    chain: list[_Culprit]
    """From the culprit on: what became of its infinity."""
    broken_gradients: list[str]
    notes: list[str]


def as_json(bundle: Bundle, finding: Finding) -> str:
    return msgspec.json.format(msgspec.json.encode(_report(bundle, finding))).decode() + "\n"


def as_text(bundle: Bundle, finding: Finding) -> str:
    report = _report(bundle, finding)
    losses = ", ".join(str(loss) for loss in report.losses)
    lines = [
        f"step {report.step}, run again from the state after step {report.state_after_step}",
        f"loss {losses}",
    ]
    if not report.reproduced:
        lines.append("loss and gradients are finite this time: the fault did not come again")
    elif report.culprit is None:
        lines.append(f"the {report.broken} is not finite; no operation could be blamed for it")
    else:
        lines += _accusation(report.culprit)
        lines += [f"    then {_in_words(one)}" for one in report.chain[1:]]
    if report.broken_gradients:
        some = ", ".join(report.broken_gradients[:5])
        lines.append(f"gradients that are not finite: {len(report.broken_gradients)} ({some})")
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines) + "\n"


def _accusation(culprit: _Culprit) -> list[str]:
    lines = [f"the first non-finite number: {_in_words(culprit)}"]
    return [*lines, f"    {culprit.line}"] if culprit.line else lines


def _in_words(one: _Culprit) -> str:
    if one.phase == "given":
        return f"{one.kind} in {one.module}, before anything ran"
    where = f" in {one.module} ({one.module_type})" if one.module_type else " outside of any module"
    through = f" of {one.backward_function}" if one.backward_function else ""
    return f"{one.kind} by {one.operation}{through}, {one.phase}{where}"


def _report(bundle: Bundle, finding: Finding) -> _Report:
    chain = _chain(finding.birth)
    facts = bundle.facts
    return _Report(
        bundle=str(bundle.path),
        step=facts.step,
        state_after_step=finding.state.step,
        losses=[to_json(loss) for loss in finding.losses],
        reproduced=bool(finding.broken),
        broken=finding.broken,
        culprit=chain[0] if chain else None,
        chain=chain,
        broken_gradients=list(finding.broken_gradients),
        notes=[note for note in (facts.batch_note, *facts.notes) if note],
    )


def _chain(birth: Birth | None) -> list[_Culprit]:
    """The births from the culprit to the one from which the loss or gradient was computed."""
    links: list[_Culprit] = []
    culprit = None if birth is None else birth.culprit
    while birth is not None:
        links.append(_of(birth))
        if birth is culprit:
            break
        birth = birth.parent
    return links[::-1]


def _of(birth: Birth) -> _Culprit:
    place = birth.place
    return _Culprit(
        place.phase,
        place.module,
        place.module_type,
        birth.operation,
        place.node,
        place.line,
        birth.kind,
    )
