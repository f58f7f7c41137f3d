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

from runwatch.terminal_text import readable, readable_json
from runwatch_hooks.bundles import Bundle, BundleError, Kept, open_bundle
from runwatch_hooks.replay.errors import ReplayError
from runwatch_hooks.replay.program import build
from runwatch_hooks.replay.report import as_json, as_text
from runwatch_hooks.replay.rerun import Finding, rerun


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
