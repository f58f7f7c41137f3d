"""Logs of past runs that a reader of the documents has: the same to the last digit each time.

The documents show what Runwatch says of them.
"""

import json
import math
from pathlib import Path


def write_logs(folder: Path) -> None:
    runs = folder / "runs"
    runs.mkdir()
    (runs / "spike.csv").write_text(_exploding_run(), encoding="utf-8")
    (runs / "trainer_state.json").write_text(_run_with_nans(), encoding="utf-8")
    (folder / "broken.csv").write_text("step,loss\n0,2.1\n1,oops\n", encoding="utf-8")


def _exploding_run() -> str:
    """Logged every tenth step, without times; its gradient explodes at step 2500."""
    rows = ["step,train/loss,learning_rate,train/grad_norm"]
    for step in range(0, 4000, 10):
        is_broken = step >= 2500
        loss = _loss(step) + (4.0 if is_broken else 0.0)
        norm = (40.0 if is_broken else 1.0) * (1.0 + 0.2 * _noise(step + 1))
        rows.append(f"{step},{loss:.6f},0.0003,{norm:.6f}")
    return "\n".join(rows) + "\n"


def _run_with_nans() -> str:
    """As Hugging Face's Trainer writes it, every fifth step; its loss jumps, and soon is NaN."""
    history = [
        {
            "step": step,
            "epoch": round(step / 1000, 4),
            "loss": math.nan if 800 <= step < 825 else round(_loss(step) + 3.0 * (step >= 700), 6),
            "grad_norm": round(1.0 + 0.2 * _noise(step + 1), 6),
            "learning_rate": 0.0003,
        }
        for step in range(5, 1000, 5)
    ]
    return json.dumps({"global_step": 995, "max_steps": 995, "log_history": history})


def _loss(step: int) -> float:
    return 2.0 + 2.0 * math.exp(-step / 400) + 0.05 * _noise(step)


def _noise(number: int) -> float:
    """Between -0.5 and 0.5, and like nothing that a rule looks for."""
    return (number * 2654435761 % 4294967296) / 4294967296 - 0.5
