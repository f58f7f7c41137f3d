"""Memory of this process and of the machine, from Linux's files: real ones, and laid ones."""

import sys
from pathlib import Path

import pytest

from runwatch_hooks.statistics.machine_memory import INTERVAL_S, MachineMemory

GIB = 2**30

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def lay(root: Path, files: dict[str, str]) -> None:
    """Files as the kernel shows them, those of every process among them."""
    files = {"proc/self/statm": "900 250 40 1 0 100 0\n", "proc/meminfo": MEMINFO} | files
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.skipif(sys.platform != "linux", reason="read from Linux's own files")
def test_what_the_process_takes_is_seen() -> None:
    memory = MachineMemory()
    before = memory.take(100.0)
    held = bytearray(b"x" * (128 * 2**20))
    after = memory.take(100.0 + INTERVAL_S)

    assert after["host_mem"] - before["host_mem"] > 0.9 * len(held)
    assert 0.0 < after["host_mem_share"] < 1.0


def test_a_reading_is_for_one_row_and_the_next_comes_a_second_later(tmp_path: Path) -> None:
    lay(tmp_path, {})
    memory = MachineMemory(tmp_path)

    readings = [bool(memory.take(now)) for now in (5.0, 5.1, 5.9, 6.0, 6.5, 9.0)]

    assert readings == [True, False, False, True, False, True]


def test_without_a_limit_it_is_the_machine_that_ends(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/self/cgroup": "0::/user.slice\n"})

    assert MachineMemory(tmp_path).take(1.0)["host_mem_share"] == pytest.approx(0.4)


def group(folder: str, limit: str, used: int, spare: int) -> dict[str, str]:
    """A control group of version 2."""
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 1\nactive_file 7\ninactive_file {spare}\n",
    }


def test_a_containers_limit_is_nearer_than_the_machines_end(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/self/cgroup": "0::/\n"})
    lay(tmp_path, group("sys/fs/cgroup", str(2 * GIB), used=GIB + GIB // 2, spare=GIB // 4))

    share = MachineMemory(tmp_path).take(1.0)["host_mem_share"]

    assert share == pytest.approx(1.25 / 2)


def test_a_limit_on_a_group_further_out_counts_as_well(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/self/cgroup": "0::/job_7/step_0\n"})
    lay(tmp_path, group("sys/fs/cgroup/job_7", str(GIB), used=GIB * 9 // 10, spare=0))
    lay(tmp_path, group("sys/fs/cgroup/job_7/step_0", "max", used=GIB // 2, spare=0))

    assert MachineMemory(tmp_path).take(1.0)["host_mem_share"] == pytest.approx(0.9)


def test_groups_of_version_1_are_read_and_their_no_limit_is_none(tmp_path: Path) -> None:
    mount = "sys/fs/cgroup/memory"
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n",
            f"{mount}/job/memory.limit_in_bytes": f"{GIB}\n",
            f"{mount}/job/memory.usage_in_bytes": f"{GIB * 3 // 4}\n",
            f"{mount}/job/memory.stat": f"cache 5\ntotal_inactive_file {GIB // 4}\n",
            f"{mount}/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )

    assert MachineMemory(tmp_path).take(1.0)["host_mem_share"] == pytest.approx(0.5)


def test_a_group_whose_files_go_away_leaves_the_machine(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/self/cgroup": "0::/job\n"})
    lay(tmp_path, group("sys/fs/cgroup/job", str(GIB), used=GIB * 9 // 10, spare=0))
    memory = MachineMemory(tmp_path)
    (tmp_path / "sys/fs/cgroup/job/memory.current").unlink()

    assert memory.take(1.0)["host_mem_share"] == pytest.approx(0.4)


def test_where_there_are_no_such_files_nothing_is_recorded(tmp_path: Path) -> None:
    memory = MachineMemory(tmp_path)

    assert memory.take(1.0) == {}
    lay(tmp_path, {})
    assert memory.take(100.0) == {}
