"""The spool's limits: a size on disk, a size in memory, room left for the trainer."""

from pathlib import Path

from runwatch_hooks.uplink.segments import Record, Segments
from runwatch_hooks.uplink.spool import Spool


def spool(
    folder: Path | None,
    lost: list[int],
    *,
    disk_bytes: int = 10**6,
    memory_bytes: int = 10**6,
    min_free_bytes: int = 0,
) -> Spool:
    made = Spool(
        disk_bytes=disk_bytes,
        memory_bytes=memory_bytes,
        min_free_bytes=min_free_bytes,
        on_lost=lambda record: lost.append(record.seq),
    )
    if folder is not None:
        made.use(Segments(folder, segment_bytes=1000))
    return made


def drained(spool: Spool) -> list[int]:
    found: list[int] = []
    while (head := spool.head()) is not None:
        found.append(head.seq)
        spool.acknowledge(head)
    return found


def test_a_full_spool_gives_up_its_oldest_records_and_says_which(tmp_path: Path) -> None:
    lost: list[int] = []
    small = spool(tmp_path, lost, disk_bytes=5000)
    for _ in range(100):
        small.append(b"x" * 200)

    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 5000
    assert lost + drained(small) == list(range(1, 101))
    assert lost


def test_a_full_disk_turns_the_spool_to_memory(tmp_path: Path) -> None:
    lost: list[int] = []
    full = spool(tmp_path, lost, min_free_bytes=2**62)
    full.append(b"frame")

    assert full.memory_only
    assert (list(tmp_path.glob("*.seg")), lost, full.head()) == ([], [], Record(1, b"frame"))


def test_records_on_disk_go_before_those_that_came_when_it_was_full(tmp_path: Path) -> None:
    lost: list[int] = []
    folder = tmp_path / "spool"
    folder.mkdir()
    half = spool(folder, lost)
    half.append(b"1")
    (folder / f"{2:020d}.seg").mkdir()  # the next file cannot be made
    half.append(b"x" * 2000)
    half.append(b"3")
    half.append(b"4")

    assert drained(half) == [1, 2, 3, 4]


def test_memory_is_bounded_too() -> None:
    lost: list[int] = []
    small = spool(None, lost, memory_bytes=1000)
    for _ in range(100):
        small.append(b"x" * 200)

    assert lost == list(range(1, 96))
    assert drained(small) == [96, 97, 98, 99, 100]


def test_the_count_of_what_waits_goes_down_to_nothing(tmp_path: Path) -> None:
    waiting = spool(tmp_path, [])
    waiting.append(b"1")
    waiting.append(b"2")
    assert waiting.num_pending == 2

    drained(waiting)
    assert waiting.num_pending == 0


def test_what_waits_on_disk_still_counts_once_memory_is_given_up(tmp_path: Path) -> None:
    """Else nobody would be told to bring it in."""
    folder = tmp_path / "spool"
    folder.mkdir()
    half = spool(folder, [])
    half.append(b"1" * 2000)
    (folder / f"{2:020d}.seg").mkdir()  # the next file cannot be made
    half.append(b"2")

    half.give_up_memory()

    assert half.num_pending >= 1
