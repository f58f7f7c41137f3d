"""`python -m runwatch_hooks.replay BUNDLE --program MODULE:FUNCTION`, or `runwatch replay`.

Builds the model, puts the bundle's state, batch and random generators into place, runs forward and
backward again, and names the module and operation that made the first non-finite number.

    def program(bundle):                                                # my_replay.py
        model = TinyGpt(vocabulary=512)
        return model, lambda batch: cross_entropy(model(batch[0]), batch[1])

    runwatch replay bundles/01JD.../step-000000499-000001 --program my_replay:program

`bundle.step` and `bundle.facts` are there for what a program needs to know. Where the bundle holds
no batch, the function is called once, with None.

Exit status:
    0  the step broke again, and what broke it is named
    1  the step went well this time
    2  wrong use: no bundle, a program that does not fit it
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runwatch.nonfinite import JsonNumber, to_json
from runwatch.terminal_text import readable, readable_json
from runwatch_hooks.bundles import Bundle, BundleError, Kept, open_bundle
from runwatch_hooks.replay.lineage import Birth, ReplayError
from runwatch_hooks.replay.rerun import Finding, build, rerun


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        bundle = open_bundle(options.bundle)
        holder = bundle if options.state_of is None else open_bundle(options.state_of)
        states = _states(holder, options.state)
        finding = _rerun(bundle, options.program, states)
    except (BundleError, ReplayError) as error:
        sys.stderr.write(readable(f"runwatch replay: {error}\n"))
        return 2
    told = (
        readable_json(as_json(bundle, finding))
        if options.json
        else readable(as_text(bundle, finding))
    )
    sys.stdout.write(told)
    return 0 if finding.broken else 1


def _rerun(bundle: Bundle, reference: str, states: Sequence[tuple[Bundle, Kept]]) -> Finding:
    try:
        return rerun(bundle, build(reference, bundle), states)
    except (BundleError, ReplayError):
        raise
    except Exception as error:  # whatever the user's own program raises
        sys.stderr.write(readable(traceback.format_exc()))
        hint = "" if bundle.batches else f" (the bundle holds no batch: {bundle.facts.batch_note})"
        raise ReplayError(f"{reference}: failed with {error!r}{hint}") from error


def _states(bundle: Bundle, wanted: str | None) -> list[tuple[Bundle, Kept]]:
    held = {"fault": bundle.facts.state, "good": bundle.facts.good}
    chosen = [one for name, one in held.items() if one is not None and wanted in (None, name)]
    if wanted is not None and not chosen:
        raise ReplayError(f"--state: the bundle holds no {wanted!r} state")
    return [(bundle, one) for one in chosen]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runwatch replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the folder step-...")
    parser.add_argument(
        "--program", required=True, metavar="MODULE:FUNCTION", help="or FILE.py:FUNCTION"
    )
    parser.add_argument(
        "--state",
        choices=("fault", "good"),
        help="run from this state only; without: from that at the fault, then the good one",
    )
    parser.add_argument(
        "--state-of",
        type=Path,
        metavar="BUNDLE",
        help="take the state of another rank's bundle, where this one's was broken already",
    )
    parser.add_argument("--json", action="store_true", help="the same facts for machines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
