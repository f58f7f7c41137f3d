"""Real trainings under other people's loops, and what a real service then knows of them."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
from tests.hooks.adapters.conftest import MakeJob
from tests.hooks.adapters.jobs import Job

pytestmark = pytest.mark.heavy

PROGRAMS = ("hf_trainer", "lightning_module", "accelerate_loop")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_is_told_step_by_step_and_goes_on_as_the_next_attempt(
    make_job: MakeJob, program: str
) -> None:
    job = make_job(program)
    job.start(steps=20)
    job.wait()
    assert job.ask()["state"] == "finished"

    job.start(steps=30)
    job.wait()
    attempts = job.ask("/attempts")["attempts"]
    assert [one["attempt"] for one in attempts] == [1, 2]
    assert attempts[1]["resume_step"] == (20 if program != "accelerate_loop" else 0)
    check_losses(job, 30)
    check_gradients(job)
    if program != "accelerate_loop":
        check_evaluations(job)


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_are_carried_out(make_job: MakeJob, program: str) -> None:
    job = make_job(program)
    job.start(steps=1_000_000)
    job.until(lambda: job.num_steps() > 5)

    checkpoint = job.command("checkpoint")
    assert checkpoint["state"] == "applied", checkpoint
    assert Path(checkpoint["detail"]["path"]).is_file()
    assert their_checkpoints(job)

    lowered = job.command("lower_lr", scale=0.5)
    assert lowered["state"] == "applied", lowered
    step = lowered["ended_step"]
    job.until(lambda: step + 3 in job.series(metric="lr"))
    rates = job.series(metric="lr")
    assert rates[step + 2] == pytest.approx(0.5 * rates[step - 1], rel=0.01)
    assert rates[step + 3] < rates[step + 2]  # the schedule goes on under it

    refused = job.command("rollback")
    assert refused["state"] == "rejected", refused
    assert "allows checkpoint, lower_lr, stop" in refused["detail"]["error"]

    assert job.command("stop")["state"] == "applied"
    job.wait()
    assert job.until(lambda: job.ask()["state"] == "stopped")


def check_losses(job: Job, num_steps: int) -> None:
    assert list(job.series(metric="loss")) == list(range(num_steps))
    assert job.series(metric="loss") == pytest.approx(written_losses(job), rel=1e-5)


def check_gradients(job: Job) -> None:
    """Those before the clip, of layers under their modules' own names."""
    norms, coefficients = job.series(metric="grad_norm"), job.series(metric="clip_coef")
    assert len(norms) == len(coefficients) > 0
    assert min(coefficients.values()) < 1
    for step, coefficient in coefficients.items():
        assert coefficient == pytest.approx(min(0.5 / (norms[step] + 1e-6), 1.0), rel=1e-3)
    layers = job.ask("/metrics")["layouts"][0]["layers"]
    of_layers = [job.series(layer=layer, stat="grad_norm")[5] for layer in layers]
    assert sum(norm**2 for norm in of_layers) ** 0.5 == pytest.approx(norms[5], rel=1e-5)
    assert not any(layer.startswith(("module.", "opt0")) for layer in layers)


def check_evaluations(job: Job) -> None:
    """Each is a phase, and its loss is the validation loss."""
    edges = [
        event["detail"]["edge"]
        for event in job.ask("/timeline")["events"]
        if event["kind"] == "phase" and event["detail"]["phase"] == "eval"
    ]
    assert edges == ["begin", "end"] * len(job.series(metric="val_loss"))
    assert len(edges) >= 4


def written_losses(job: Job) -> dict[int, float]:
    """What the program knows of its own losses: the mean over the batches of a step."""
    if job.program == "hf_trainer":
        history = json.loads((job.output / "history.json").read_text())["log_history"]
        return {entry["step"] - 1: entry["loss"] for entry in history if "loss" in entry}
    batches: dict[int, list[float]] = defaultdict(list)
    for line in (job.output / "losses.jsonl").read_text().splitlines():
        entry = json.loads(line)
        batches[entry["step"]].append(entry["loss"])
    return {step: fmean(losses) for step, losses in batches.items()}


def their_checkpoints(job: Job) -> list[Path]:
    """Those of the framework itself."""
    patterns = ("checkpoint-*", "runwatch/lightning-*.ckpt", "state")
    return [path for pattern in patterns for path in job.output.glob(pattern)]
