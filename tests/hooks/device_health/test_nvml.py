"""Devices as their driver tells of them: the real nvidia-ml-py over a driver library of our own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pynvml")

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("fake_nvml.c")
PROGRAM = Path(__file__).with_name("sensed_training.py")
GIB = 2**30


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of two devices."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return folder


def run(folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder / "lost")],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return done.stdout.decode()


@pytest.fixture(scope="module")
def told(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a training beside them recorded."""
    folder = tmp_path_factory.mktemp("training")
    variables = {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML_LOST": str(folder / "lost")}
    found: dict[str, Any] = json.loads(run(folder, **variables))
    return found


def of_devices(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name.startswith("gpu_")}


def test_the_first_row_tells_of_each_device_what_it_can_tell(told: dict[str, Any]) -> None:
    first = of_devices(told["rows"][0])

    assert first == {
        "gpu_mem": pytest.approx(3 * GIB, rel=1e-3),
        "gpu_temp": 71.0,
        "gpu_util": 0.93,
        "gpu_throttled": 1.0,
        "gpu_ecc_errors": 2.0,
        "gpu_mem.1": pytest.approx(GIB, rel=1e-3),
        "gpu_util.1": 0.93,
        "gpu_throttled.1": 0.0,
    }


def test_each_reading_is_told_once_and_a_row_without_one_has_none(told: dict[str, Any]) -> None:
    memory = [row["gpu_mem"] for row in told["rows"] if "gpu_mem" in row]

    assert len(memory) >= 3
    assert len(set(memory)) == len(memory)  # the driver counts how often it is asked


def test_a_programs_own_number_of_that_name_is_kept_beside_it(told: dict[str, Any]) -> None:
    assert {row["user/gpu_temp"] for row in told["rows"]} == {20.0}
    assert {row["gpu_temp"] for row in told["rows"] if "gpu_temp" in row} == {71.0}


def test_devices_that_are_lost_are_not_recorded_and_training_goes_on(told: dict[str, Any]) -> None:
    assert told["silent"] == 50
    assert told["num_faults"] == 0


def test_no_thread_is_left_after_the_end(told: dict[str, Any]) -> None:
    assert told["threads"] == ["MainThread"]


def test_a_device_that_nvml_does_not_know_and_no_device_have_no_sensors(
    told: dict[str, Any],
) -> None:
    assert told["unknown"]
    assert told["none"]


def test_doctor_says_who_answers(told: dict[str, Any]) -> None:
    assert told["doctor"] == [["good", "driver 570.00, 2 devices; those of a run are recorded"]]


@pytest.mark.parametrize(
    ("variables", "why"),
    [({"FAKE_NVML_NO_DRIVER": "1"}, "Driver Not Loaded"), ({}, "NVML Shared Library Not Found")],
)
def test_without_a_driver_nothing_is_recorded_and_doctor_says_why(
    driver: Path, tmp_path: Path, variables: dict[str, str], why: str
) -> None:
    path = str(driver) if variables else str(tmp_path)
    program = (
        "from runwatch_hooks.device_health import open_sensors\n"
        "from runwatch_hooks.doctor import examine\n"
        "assert open_sensors(['11111111-2222-3333-4444-555555555555']) is None\n"
        "print([one.found for one in examine({}) if one.name == 'NVML'][0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"LD_LIBRARY_PATH": path} | variables,
        capture_output=True,
        check=True,
        timeout=120,
    )

    assert f"{why}; memory and temperature of devices are not recorded" in done.stdout.decode()
