"""Runs the demo from its first process to its result."""

import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch.vocabulary import PolicyMode, RunId, Severity
from runwatch_server.clock import Clock
from runwatch_server.demo.client import Client
from runwatch_server.demo.events import DemoEvent, RunEvents
from runwatch_server.demo.outcome import Mode, Outcome
from runwatch_server.demo.service_process import ServiceProcess
from runwatch_server.demo.trainers import Trainer, TrainerReport, TrainingPlan
from runwatch_server.demo.view import View

PROJECT: Final = "demo"

_LOOK_EVERY_S: Final = 0.25
"""Seconds between queries of what the service has seen and done."""


class DemoRunner:
    """Starts the trainings with a running service, and watches both."""

    def __init__(
        self, folder: Path, plan: TrainingPlan, service: ServiceProcess, client: Client, view: View
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._service = service
        self._client = client
        self._view = view
        self._reports: queue.Queue[TrainerReport] = queue.Queue()
        self._trainers = {mode: Trainer(mode, plan, folder, self._reports) for mode in Mode}
        clock = Clock()
        self._run_ids = {mode: RunId(clock.new_ulid()) for mode in (Mode.CLEAN, Mode.PROTECTED)}
        self._events = {mode: RunEvents() for mode in self._run_ids}
        self._rolled_back: tuple[int, int] | None = None

    def run(self) -> Outcome:
        """Run all three trainings. Raises DemoError if one of them fails."""
        try:
            self._view.show_text("Clean, and with the fault while nobody watches:")
            self._train(Mode.CLEAN, Mode.UNPROTECTED)
            self._view.show_text("With the fault, and Runwatch watching (policy: auto):")
            self._train(Mode.PROTECTED)
        finally:
            for trainer in self._trainers.values():
                trainer.stop()
        return self._outcome()

    def _train(self, *modes: Mode) -> None:
        token = self._client.create_key("demo trainer", "ingest", project=PROJECT)
        for mode in modes:
            self._view.begin(mode)
            self._trainers[mode].start(self._variables(mode, token))
        running = set(modes)
        asked_at = 0.0
        while running:
            self._handle_report(running)
            if time.monotonic() - asked_at > _LOOK_EVERY_S:
                self._report_changes(modes)
                asked_at = time.monotonic()
        for mode in modes:
            self._trainers[mode].finish()
        self._report_changes(modes)

    def _variables(self, mode: Mode, token: str) -> dict[str, str]:
        """The environment variables of a trainer; none of ours if it is not watched."""
        if mode not in self._run_ids:
            return {}
        policy = PolicyMode.AUTO if mode is Mode.PROTECTED else PolicyMode.OBSERVE
        run_id = self._run_ids[mode]
        self._client.open_run(run_id, f"demo-{mode}", project=PROJECT, policy=policy)
        return {
            "RUNWATCH_URL": self._service.url,
            "RUNWATCH_TOKEN": token,
            "RUNWATCH_RUN_ID": run_id,
            "RUNWATCH_SPOOL": str(self._folder / "spool"),
            "RUNWATCH_DISABLED": "0",
        }

    def _handle_report(self, running: set[Mode]) -> None:
        """Handle one line of a trainer, if one comes soon."""
        try:
            report = self._reports.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            return
        if report.line is None:
            running.discard(report.mode)
            return
        line = report.line
        if line.step is None:
            return
        if line.rolled_back_to is not None:
            self._rolled_back = (line.step, line.rolled_back_to)
            self._report_changes((report.mode,))
            words = f"went back after step {line.step}, and trains step {line.rolled_back_to} next"
            self._view.show_event(DemoEvent("trainer", words))
        self._view.progress(report.mode, line.step, line.loss_value)

    def _report_changes(self, modes: Sequence[Mode]) -> None:
        """Report what is new at the service."""
        for mode in modes:
            if mode not in self._run_ids:
                continue
            run_id, events = self._run_ids[mode], self._events[mode]
            new_events = events.of_alerts(self._client.alerts(run_id))
            new_events += events.of_commands(self._client.commands(run_id))
            for event in new_events:
                self._view.show_event(event)

    def _outcome(self) -> Outcome:
        run_id = self._run_ids[Mode.PROTECTED]
        on_clean = self._client.alerts(self._run_ids[Mode.CLEAN])
        back = self._rolled_back
        return Outcome(
            fault_step=self._plan.fault_step,
            detected_step=self._detected_step(run_id),
            rolled_back_at=None if back is None else back[0],
            rolled_back_to=None if back is None else back[1],
            losses={mode: trainer.losses for mode, trainer in self._trainers.items()},
            stored_losses=self._client.losses(run_id, self._plan.steps),
            false_alerts=sum(
                # A machine that is busy with other things makes slower steps, which alerts of
                # `info` report.
                alert.firing_step is not None and alert.severity != Severity.INFO
                for alert in on_clean
            ),
            url=self._service.url,
        )

    def _detected_step(self, run_id: RunId) -> int | None:
        """The step at which the first alert fired whose onset is not before the fault."""
        steps = [
            alert.firing_step
            for alert in self._client.alerts(run_id)
            if alert.firing_step is not None and alert.firing_step >= self._plan.fault_step
        ]
        return min(steps, default=None)
