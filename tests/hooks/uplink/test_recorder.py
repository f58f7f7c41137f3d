"""Two threads at one spool: the sender, and the training thread that has waited long enough."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

import pytest
from tests.hooks.uplink.factories import ATTEMPT, LAYOUT, RUN, row, settings
from tests.waiting import LONGEST_S

from runwatch.codec import split_frame
from runwatch.messages import AttemptClose
from runwatch_hooks.uplink.backlog import FormerLives
from runwatch_hooks.uplink.queue import RowQueue
from runwatch_hooks.uplink.recorder import ReceiptBox, Recorder
from runwatch_hooks.uplink.sender import Pace, Sender
from runwatch_hooks.uplink.spool import SpoolFolder, SpoolMeta
from runwatch_hooks.uplink.stalls import ProgressBoard, StallWatch
from runwatch_hooks.uplink.threads import Wakeup

CLOSING: Final = AttemptClose("finished", last_step=0)
TIME_TO_OVERTAKE_S: Final = 0.5
"""For a thread that nothing holds back: with less of it a fault may be missed, and no more."""

TIME_TO_CLOSE_S: Final = 30.0
"""Far more than the training thread waits for the sender and the disk."""


class SlowFolder(SpoolFolder):
    """Stands still before one write of meta.json, as on a disk that is busy."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_slow = False
        self.writes = threading.Event()
        self.goes_on = threading.Event()

    def write_meta(self, meta: SpoolMeta) -> None:
        if self.is_slow:
            self.is_slow = False
            self.writes.set()
            assert self.goes_on.wait(LONGEST_S)
        super().write_meta(meta)


def test_the_end_is_kept_though_the_sender_was_just_writing_down_a_layout(tmp_path: Path) -> None:
    queue, folder = RowQueue(2**20), SlowFolder(tmp_path / "run" / "attempt")
    meta = SpoolMeta(run=RUN, attempt=ATTEMPT, rank=0)
    recorder = Recorder(settings(tmp_path), folder, meta, queue, ReceiptBox())
    recorder.open()
    queue.put(row())
    folder.is_slow = True
    with ThreadPoolExecutor(2) as threads:
        sending = threads.submit(recorder.record, now=0.0, max_frame_bytes=2**20)
        assert folder.writes.wait(LONGEST_S)
        ending = threads.submit(recorder.note_end, CLOSING)
        wait([ending], TIME_TO_OVERTAKE_S)
        folder.goes_on.set()
        sending.result()
        ending.result()
    recorder.close(is_delivered=False)

    assert folder.read_meta().closing == CLOSING
    assert list(folder.read_meta().layouts) == [LAYOUT.hash]


def test_the_training_thread_does_not_wait_for_a_disk_that_stands_still(tmp_path: Path) -> None:
    queue, folder = RowQueue(2**20), SlowFolder(tmp_path / "run" / "attempt")
    meta = SpoolMeta(run=RUN, attempt=ATTEMPT, rank=0)
    recorder = Recorder(settings(tmp_path), folder, meta, queue, ReceiptBox())
    former = FormerLives(settings(tmp_path), folder.path, 0)
    pace = Pace(close_s=0.01, calm_s=0.01, now=time.monotonic())
    stalls = StallWatch(ProgressBoard().see, queue.put, stall_s=40.0)
    sender = Sender(recorder, None, None, None, former, Wakeup(), pace, stalls)
    recorder.open()
    queue.put(row())
    folder.is_slow = True
    sender.start()
    assert folder.writes.wait(LONGEST_S)
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(sender.close, CLOSING, 0.1)
        done, _ = wait([closing], TIME_TO_CLOSE_S)
        folder.goes_on.set()
    assert done == {closing}


@pytest.mark.usefixtures("hasty_threads")
def test_frames_that_two_threads_make_at_once_have_numbers_of_their_own(tmp_path: Path) -> None:
    queue, folder = RowQueue(2**24), SpoolFolder(tmp_path / "run" / "attempt")
    meta = SpoolMeta(run=RUN, attempt=ATTEMPT, rank=0)
    recorder = Recorder(settings(tmp_path), folder, meta, queue, ReceiptBox())
    recorder.open()

    def record(steps: range) -> None:
        for step in steps:
            queue.put(row(step))
            recorder.record(now=0.0, max_frame_bytes=2**20)

    with ThreadPoolExecutor(2) as threads:
        for recording in [threads.submit(record, range(at, 400, 2)) for at in (0, 1)]:
            recording.result()

    sent: list[int] = []
    while (head := recorder.head()) is not None:
        header, _ = split_frame(head.payload)
        sent += range(header.first_step, header.first_step + header.num_steps)
        recorder.acknowledge(head)
    recorder.close(is_delivered=True)
    assert sorted(sent) == list(range(400))
