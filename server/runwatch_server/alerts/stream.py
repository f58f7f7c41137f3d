"""One stream of frames, one rank's of one attempt: put in order, and judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.rules import Evaluator, Rows, Rule, Transition
from runwatch.vocabulary import Scope
from runwatch_server.alerts.records import Evaluation
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.seams import CommittedFrame

MAX_HELD: Final = 64
"""Frames kept in memory; what comes beyond is read back from disk when its turn has come."""

STATE_EVERY_FRAMES: Final = 64
"""Frames between two savings of an evaluator's state, at least."""
STATE_SHARE: Final = 0.25
"""Of what is written, that states may be: windows of many layers are larger than their frames."""
STATE_AT_MOST_FRAMES: Final = 512
"""Frames that a restart judges again, silently, at most."""


@dataclass(frozen=True, slots=True)
class StreamKey:
    attempt: int
    rank: int


class FrameQueue:
    """Hands frames out in the order of their sequence numbers, none twice."""

    def __init__(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self.newest_seq = next_seq - 1
        """The highest known to be on disk."""
        self._held: dict[int, CommittedFrame] = {}

    @property
    def is_behind(self) -> bool:
        return self.newest_seq >= self.next_seq

    @property
    def num_waiting(self) -> int:
        """Frames that are, or may be, on disk and are not judged."""
        return max(self.newest_seq - self.next_seq + 1, 0)

    def note(self, newest_seq: int) -> None:
        """Frames up to this one are, or may be, on disk."""
        self.newest_seq = max(self.newest_seq, newest_seq)

    def put(self, frame: CommittedFrame) -> None:
        self.note(frame.seq)
        if frame.seq >= self.next_seq and len(self._held) < MAX_HELD:
            self._held[frame.seq] = frame

    def take(self, most: int) -> list[CommittedFrame]:
        """The frames that are next, as far as they are held without a gap; stay until `done`."""
        taken: list[CommittedFrame] = []
        while len(taken) < most and self.next_seq + len(taken) in self._held:
            taken.append(self._held[self.next_seq + len(taken)])
        return taken

    def done(self, last_seq: int) -> None:
        """All up to this one is behind us."""
        self.next_seq = last_seq + 1
        self._held = {seq: frame for seq, frame in self._held.items() if seq > last_seq}


class StreamJudge:
    """The evaluator of one stream. Rank 0 speaks for the run and its layers; every rank speaks
    for itself. Computes; to be called on the evaluators' thread."""

    def __init__(
        self,
        rank: int,
        rule_set: RuleSet,
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> None:
        self.rule_set = rule_set
        self._rank = rank
        rules = judged_at(rank, rule_set.rules)
        self._evaluator = Evaluator.restore(rules, state) if state else Evaluator(rules, known)

    def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        transitions: list[Transition] = []
        for committed in frames:
            if committed.frame.num_steps:
                rows = Rows.from_frame(committed.frame, committed.layout)
                transitions += self._evaluator.observe(rows)
        return transitions

    @property
    def known_to_next(self) -> dict[str, float]:
        """What the next attempt is to know of this one."""
        return self._evaluator.known_to_next

    def state(self) -> bytes:
        return self._evaluator.state()

    def with_rules(self, rule_set: RuleSet) -> "StreamJudge":
        """The same with other rules: what did not change goes on, what did starts cold."""
        return StreamJudge(self._rank, rule_set, self.state())


@dataclass(slots=True)
class Stream:
    """A stream that is being judged."""

    evaluation: Evaluation
    """As it is on disk."""
    is_stored: bool
    judge: StreamJudge
    queue: FrameQueue
    project: str
    gap_since: float | None = None
    unsaved_bytes: int = 0
    """Of the frames judged since the state was saved."""

    @property
    def state_is_due(self) -> bool:
        """Once the frames judged so far are to be saved."""
        num_frames = self.queue.next_seq - 1 - self.evaluation.state_seq
        if num_frames < STATE_EVERY_FRAMES:
            return False
        is_cheap = len(self.evaluation.state) <= STATE_SHARE * self.unsaved_bytes
        return is_cheap or num_frames >= STATE_AT_MOST_FRAMES


def judged_at(rank: int, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that a rank's stream is judged by."""
    return [
        rule for rule in rules if rule.absence is None and (rank == 0 or rule.scope is Scope.RANK)
    ]
