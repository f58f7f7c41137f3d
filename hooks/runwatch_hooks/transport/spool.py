"""Frames that were not acknowledged yet: on disk or, if that fails, in memory; both bounded."""

import shutil
from collections import deque
from collections.abc import Callable

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.records import HEAD_BYTES, Record
from runwatch_hooks.transport.segments import Segments

log = OwnLog(__name__)


class Spool:
    """A queue of records, bounded by bytes on disk and by bytes in memory. Never raises OSError.

    Used by one thread. `on_lost` is called with every record that had to be dropped.
    """

    def __init__(
        self,
        *,
        disk_bytes: int,
        memory_bytes: int,
        min_free_bytes: int,
        on_lost: Callable[[Record], None],
    ) -> None:
        self._segments: Segments | None = None
        self._disk_bytes = disk_bytes
        self._memory: deque[Record] = deque()
        self._num_memory_bytes = 0
        self._memory_bytes = memory_bytes
        self._min_free_bytes = min_free_bytes
        self._on_lost = on_lost
        self._num_abandoned_bytes = 0
        self.next_seq = 1
        self.memory_only = True
        """No disk yet, or it is full or broken: records are lost if the process ends."""

    def use(self, segments: Segments) -> None:
        """Write to disk from now on, if possible."""
        self._segments = segments
        self.memory_only = False

    @property
    def num_pending(self) -> int:
        """An upper limit on the waiting records: damaged and lost ones count until reached."""
        head = self.head()
        return 0 if head is None else self.next_seq - head.seq

    @property
    def num_damaged_bytes(self) -> int:
        segments = self._segments
        return self._num_abandoned_bytes + (segments.num_damaged_bytes if segments else 0)

    def append(self, payload: bytes) -> None:
        """Add a payload, under `next_seq`."""
        record = Record(self.next_seq, payload)
        self.next_seq += 1
        if self._segments is None or not self._write(self._segments, record):
            self._keep_in_memory(record)

    def head(self) -> Record | None:
        """The oldest record that was not acknowledged."""
        heads = [record for record in (self._disk_head(), self._memory_head()) if record]
        return min(heads, key=lambda record: record.seq, default=None)

    def acknowledge(self, record: Record) -> None:
        """The head has arrived, or was set aside."""
        if self._memory_head() == record:
            self._pop_memory()
        if self._segments is not None:
            try:
                self._segments.acknowledge(record.seq)
            except OSError as error:  # at worst, a sync sends it again, which is harmless
                log.debug("spool: the mark of what was acknowledged is not written: %s", error)

    def give_up_memory(self) -> int:
        """At the end, drop the records in memory; returns how many are lost."""
        num_lost = len(self._memory)
        while self._memory:
            self._on_lost(self._pop_memory())
        return num_lost

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()

    def _write(self, segments: Segments, record: Record) -> bool:
        try:
            self._make_room(segments, HEAD_BYTES + len(record.payload))
            free_bytes = shutil.disk_usage(segments.folder).free
            if free_bytes < self._min_free_bytes:
                raise OSError(f"found {free_bytes} bytes free, wanted {self._min_free_bytes}")
            segments.append(record)
        except OSError as error:
            if not self.memory_only:
                log.warning("spool: cannot be written, so in memory only from now on: %s", error)
            self.memory_only = True
            return False
        if self.memory_only:
            log.warning("spool: on disk again")
        self.memory_only = False
        return True

    def _make_room(self, segments: Segments, num_bytes: int) -> None:
        while segments.num_files > 1 and segments.num_bytes + num_bytes > self._disk_bytes:
            for lost in segments.drop_oldest():
                self._on_lost(lost)

    def _keep_in_memory(self, record: Record) -> None:
        self._memory.append(record)
        self._num_memory_bytes += len(record.payload)
        while self._num_memory_bytes > self._memory_bytes and len(self._memory) > 1:
            self._on_lost(self._pop_memory())

    def _pop_memory(self) -> Record:
        record = self._memory.popleft()
        self._num_memory_bytes -= len(record.payload)
        return record

    def _memory_head(self) -> Record | None:
        return self._memory[0] if self._memory else None

    def _disk_head(self) -> Record | None:
        if self._segments is None:
            return None
        try:
            return self._segments.head()
        except OSError as error:
            log.warning("spool: cannot be read, so in memory only from now on: %s", error)
            self._abandon(self._segments)
            return None

    def _abandon(self, segments: Segments) -> None:
        """Stop using the disk, for example because the folder was removed: writes to its open file
        would be lost."""
        self._num_abandoned_bytes += segments.num_damaged_bytes + segments.num_bytes
        self._segments = None
        self.memory_only = True
        segments.close()
