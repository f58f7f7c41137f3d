"""The evaluator of one stream of frames: its computation, independent of where it runs."""

from collections.abc import Iterator, Mapping, Sequence

from runwatch.rules import Evaluator, Rows, Rule, Transition, with_hashes
from runwatch.vocabulary import Scope
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.committed_frames import CommittedFrame


class StreamJudge:
    """Evaluates one stream. That of rank 0 covers the run and its layers; that of any other rank
    covers the rank alone."""

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

    def observe(self, rows: Rows) -> list[Transition]:
        return self._evaluator.observe(rows)

    @property
    def known_to_next(self) -> dict[str, float]:
        """What the next attempt has to know about this one."""
        return self._evaluator.known_to_next

    @property
    def num_bytes(self) -> int:
        return self._evaluator.num_bytes

    def state(self) -> bytes:
        return self._evaluator.state()

    def with_rules(self, rule_set: RuleSet) -> "StreamJudge":
        """The same judge with other rules: those that judge as before keep their state, changed
        ones start cold."""
        state = with_hashes(self.state(), rule_set.hashes_since(self.rule_set))
        return StreamJudge(self._rank, rule_set, state)


def judged_at(rank: int, rules: Sequence[Rule]) -> list[Rule]:
    """The rules by which a rank's stream is judged."""
    return [
        rule for rule in rules if rule.absence is None and (rank == 0 or rule.scope is Scope.RANK)
    ]


def rows_of(frames: Sequence[CommittedFrame]) -> Iterator[Rows]:
    """The rows to judge from each frame that has steps, or events that rules read. Raises
    FrameError."""
    for committed in frames:
        rows = Rows.from_frame(committed.frame, committed.layout)
        if rows.num_rows or rows.unplaced:
            yield rows


def are_late(frames: Sequence[CommittedFrame]) -> bool:
    """Whether all frames were sent afterwards, so that nobody waits for their result."""
    return all(committed.late for committed in frames)
