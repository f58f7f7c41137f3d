"""The spool on disk: a queue that survives its process, torn writes and flipped bytes."""

import tempfile
from collections import deque
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runwatch_hooks.uplink.segments import HEAD_BYTES, Record, Segments


def drained(segments: Segments) -> list[int]:
    """The sequence numbers of all that waits, acknowledged one by one."""
    found: list[int] = []
    while (head := segments.head()) is not None:
        found.append(head.seq)
        segments.acknowledge(head.seq)
    return found


def filled(folder: Path, num_records: int = 5, segment_bytes: int = 10**6) -> Path:
    """The last file of a spool with some records in it."""
    segments = Segments(folder, segment_bytes)
    for seq in range(1, num_records + 1):
        segments.append(Record(seq, b"frame %d" % seq))
    segments.close()
    return sorted(folder.glob("*.seg"))[-1]


def test_records_come_back_in_order_over_several_files(tmp_path: Path) -> None:
    filled(tmp_path, num_records=20, segment_bytes=100)

    assert len(list(tmp_path.glob("*.seg"))) > 1
    assert drained(Segments(tmp_path, 100)) == list(range(1, 21))


def test_what_was_acknowledged_stays_so_after_reopening(tmp_path: Path) -> None:
    filled(tmp_path)
    segments = Segments(tmp_path, 100)
    segments.acknowledge(3)
    segments.close()

    assert drained(Segments(tmp_path, 100)) == [4, 5]


def test_a_damaged_mark_sends_everything_again(tmp_path: Path) -> None:
    filled(tmp_path)
    Segments(tmp_path, 100).acknowledge(3)
    (tmp_path / "acked").write_bytes(b"\x05" + b"\0" * 11)

    assert drained(Segments(tmp_path, 100)) == [1, 2, 3, 4, 5]


def test_a_tail_torn_at_any_byte_costs_the_last_record_only(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    last_bytes = HEAD_BYTES + len(b"frame 5")
    for torn_bytes in range(1, last_bytes + 1):
        path.write_bytes(whole[:-torn_bytes])
        (tmp_path / "acked").unlink(missing_ok=True)
        segments = Segments(tmp_path, 100)

        assert drained(segments) == [1, 2, 3, 4]
        assert segments.num_damaged_bytes == last_bytes - torn_bytes


def test_a_flipped_byte_costs_one_record_only(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    record_bytes = HEAD_BYTES + len(b"frame 1")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        (tmp_path / "acked").unlink(missing_ok=True)
        segments = Segments(tmp_path, 100)

        hit = place // record_bytes + 1
        assert drained(segments) == [seq for seq in range(1, 6) if seq != hit]
        assert segments.num_damaged_bytes == record_bytes


def test_a_file_that_exists_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / f"{1:020d}.seg").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()

    with pytest.raises(FileExistsError):
        Segments(tmp_path, 100).append(Record(1, b"frame"))


class SpoolMachine(RuleBasedStateMachine):
    """A list in memory is the model; the process may end and begin again at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.segments = self.reopened()
        self.model: deque[Record] = deque()
        self.next_seq = 1

    def reopened(self) -> Segments:
        return Segments(Path(self.folder.name), segment_bytes=200)

    @rule(payload=st.binary(max_size=150))
    def append(self, payload: bytes) -> None:
        record = Record(self.next_seq, payload)
        self.segments.append(record)
        self.model.append(record)
        self.next_seq += 1

    @precondition(lambda self: self.model)
    @rule()
    def acknowledge(self) -> None:
        self.segments.acknowledge(self.model.popleft().seq)

    @rule()
    def drop_oldest(self) -> None:
        for lost in self.segments.drop_oldest():
            assert lost == self.model.popleft()

    @rule()
    def reopen(self) -> None:
        self.segments.close()
        self.segments = self.reopened()

    @rule(garbage=st.binary(min_size=1, max_size=30).filter(lambda octets: b"R" not in octets))
    def die_while_writing(self, garbage: bytes) -> None:
        """A torn record, whose head is gone too, at the end of the newest file."""
        self.segments.close()
        for path in sorted(Path(self.folder.name).glob("*.seg"))[-1:]:
            path.write_bytes(path.read_bytes() + garbage)
        self.segments = self.reopened()

    @invariant()
    def the_head_is_the_models(self) -> None:
        assert self.segments.head() == (self.model[0] if self.model else None)

    def teardown(self) -> None:
        assert drained(self.segments) == [record.seq for record in self.model]
        self.segments.close()
        self.folder.cleanup()


SpoolMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestSpoolMachine = SpoolMachine.TestCase
