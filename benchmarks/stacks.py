"""Are rows right, trained bits the same and a NaN reported, whatever torch and Python are there?

    python -m benchmarks.stacks here=.venv/bin/python old=/envs/torch-2.6/bin/python

Each environment needs torch, msgspec, numpy, urllib3 and, before Python 3.14, zstandard; the hook
comes from this checkout. Every way of training runs bare and attached, to a real service. What the
service stored is held against what the program summed itself.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from benchmarks.harness import Service, machine, markdown_table, running_service
from benchmarks.stack_trainings import STEPS

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = Path(__file__).with_name("stack_trainings.py")
ALONE: Final = ("plain", "amp", "compile", "nan")
WAYS: Final = (*ALONE, "ddp")
LAUNCHER: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
NEAR: Final = 1e-5
"""Layers' norms are stored as float32."""
PATIENCE_S: Final = 60.0


def main() -> None:
    options = _options()
    print(f"\n{machine()}")
    rows: list[Sequence[str]] = []
    with running_service() as service, tempfile.TemporaryDirectory(dir=options.folder) as name:
        for stack in options.stacks:
            label, _, command = stack.partition("=")
            rows.append((label, *_row(service, Path(name) / label, shlex.split(command))))
            print(markdown_table(("stack", "torch", "Python", *WAYS), rows[-1:]), flush=True)
    print(f"\n{STEPS} steps each: rows against sums of the program's own, trained bits, alerts\n")
    print(markdown_table(("stack", "torch", "Python", *WAYS), rows))
    if any(cell != "right" for row in rows for cell in row[3:]):
        sys.exit(1)


def _row(service: Service, folder: Path, python: Sequence[str]) -> list[str]:
    """Versions, and of each way what is wrong, or `right`."""
    folder.mkdir()
    facts: Mapping[str, Any] = {}
    found: dict[str, str] = {}
    for ways in (ALONE, ("ddp",)):
        launch = LAUNCHER if ways == ("ddp",) else ()
        try:
            bare = _train(folder, [*python, *launch], ways, {})
            attached = _train(folder, [*python, *launch], ways, _to(service, folder))
        except RuntimeError as error:
            found |= dict.fromkeys(ways, str(error))
            continue
        facts = attached["facts"]
        with service.client() as client:
            for way in ways:
                wrong = _wrong(client, way, bare["ways"][way], attached["ways"][way])
                found[way] = "; ".join(wrong + facts["warnings"]) or "right"
    versions = [str(facts.get(name, "?")) for name in ("torch", "python")]
    return [*versions, *(found[way] for way in WAYS)]


def _to(service: Service, folder: Path) -> dict[str, str]:
    return {
        "RUNWATCH_URL": service.url,
        "RUNWATCH_TOKEN": service.process.admin_key,
        "RUNWATCH_SPOOL": str(folder / "spool"),
    }


def _train(
    folder: Path, python: Sequence[str], ways: Sequence[str], watched: Mapping[str, str]
) -> dict[str, Any]:
    """What the program wrote. Raises RuntimeError, with its last line, where it failed."""
    out = folder / f"{ways[0]}-{'attached' if watched else 'bare'}.json"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RUNWATCH_", "PYTHON"))}
    own = {
        "PYTHONPATH": f"{ROOT / 'watchdog'}{os.pathsep}{ROOT / 'hooks'}",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = subprocess.run(
        [*python, str(PROGRAM), str(out), *ways, *(["--attached"] if watched else [])],
        env=kept | own | dict(watched),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not out.exists():
        lines = [line for line in done.stderr.splitlines() if "Error" in line]
        raise RuntimeError((lines or [f"ended with {done.returncode}"])[-1][:300])
    if watched:  # what a busy machine did not send within the ten seconds of `finish`
        sync = [sys.executable, "-m", "runwatch_hooks.sync", watched["RUNWATCH_SPOOL"]]
        subprocess.run(sync, env=os.environ | own | dict(watched), capture_output=True, check=False)
    written: dict[str, Any] = json.loads(out.read_text())
    return written


def _wrong(
    client: httpx.Client, way: str, bare: Mapping[str, Any], attached: Mapping[str, Any]
) -> list[str]:
    """What differs from what it should be."""
    run_id = attached["run_id"]
    wrong: list[str] = []
    # As text, so that NaN equals itself.
    if [str(bare[key]) for key in ("weights", "losses")] != [
        str(attached[key]) for key in ("weights", "losses")
    ]:
        wrong.append("other bits")
    for metric, own in (("loss", "losses"), ("grad_norm", "norms"), ("lr", "rates")):
        wrong += _compared(metric, _series(client, run_id, metric=metric), attached[own])
    finite = {layer: norm for layer, norm in attached["layers"].items() if math.isfinite(norm)}
    for layer, norm in finite.items():  # of others, the norm of their finite values is stored
        stored = _series(client, run_id, layer=layer, stat="grad_norm")
        wrong += _compared(layer, stored[-1:], [norm])
    expected = {"NonFinite"} if way == "nan" else set[str]()
    found = _alerts(client, run_id, expected)
    if not expected <= found or (found and not expected):
        wrong.append(f"alerts {sorted(found)}")
    return wrong


def _compared(what: str, stored: Sequence[float], own: Sequence[float]) -> list[str]:
    if len(stored) != len(own):
        return [f"{what}: {len(stored)} rows of {len(own)}"]
    off = [
        abs(a - b) / max(abs(b), 1e-30)
        for a, b in zip(stored, own, strict=True)
        if not (math.isnan(a) and math.isnan(b))
    ]
    return [] if all(one <= NEAR for one in off) else [f"{what}: off by {max(off):.1e}"]


def _series(client: httpx.Client, run_id: str, **query: str) -> list[float]:
    """The stored values, step by step; a NaN is a text in JSON."""
    reply = client.get(f"/runs/{run_id}/series", params={**query, "points": 10_000})
    reply.raise_for_status()
    return [math.nan if value is None else float(value) for value in reply.json()["values"]]


def _alerts(client: httpx.Client, run_id: str, awaited: set[str]) -> set[str]:
    """The rules that fired for a run; those that are awaited get some time."""
    until = time.monotonic() + PATIENCE_S
    while True:
        reply = client.get("/alerts", params={"run_id": run_id})
        reply.raise_for_status()
        found = {one["rule"] for one in reply.json()["alerts"]}
        if awaited <= found or time.monotonic() > until:
            return found
        time.sleep(0.2)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stacks", nargs="+", metavar="NAME=PYTHON", help="a command, quoted")
    parser.add_argument("--folder", type=Path, help="for what the trainings write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
