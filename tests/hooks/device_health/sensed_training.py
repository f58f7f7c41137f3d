"""A training on the host beside devices that a driver library of the tests tells of; prints JSON.

sensed_training.py LOST    where LOST is a file whose existence is the devices' end
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM
from torch import nn

from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.device_health import DeviceSensors, open_sensors
from runwatch_hooks.doctor import examine
from runwatch_hooks.settings.options import Options

FIRST = "11111111-2222-3333-4444-555555555555"
SECOND = "99999999-8888-7777-6666-555555555555"
DEADLINE_S = 60.0


def main(lost: Path) -> dict[str, Any]:
    line = RecordingLine()
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def sensors() -> DeviceSensors | None:
        return open_sensors([FIRST, SECOND], interval_s=0.01)

    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(), line.open, TEAM, open_sensors=sensors)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(3, 4)).square().mean())
        optimizer.step()
        watch.step(1.0, gpu_temp=20.0)

    until = time.monotonic() + DEADLINE_S
    while len(line.metric("gpu_mem")) < 3 and time.monotonic() < until:
        step()
    lost.touch()
    silent = 0
    while silent < 50 and time.monotonic() < until:
        step()
        silent = 0 if "gpu_mem" in line.rows[-1].metrics else silent + 1
    findings = [one for one in examine({}) if one.name == "NVML"]
    watch.finish()
    for thread in threading.enumerate():  # `finish` waits for a second, a busy machine may not do
        if thread.name == "runwatch-devices":
            thread.join(DEADLINE_S)
    return {
        "rows": [dict(row.metrics) for row in line.rows],
        "silent": silent,
        "num_faults": watch.num_faults,
        "unknown": open_sensors(["00000000-0000-0000-0000-000000000000"]) is None,
        "none": open_sensors([]) is None,
        "threads": [one.name for one in threading.enumerate()],
        "doctor": [[one.verdict, one.found] for one in findings],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
