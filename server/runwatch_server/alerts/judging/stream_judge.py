"""The evaluator of one stream of frames: what it computes, without where and when."""

from collections.abc import Iterator, Mapping, Sequence

from runwatch.rules import Evaluator, Rows, Rule, Transition
from runwatch.vocabulary import Scope
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.seams import CommittedFrame


class StreamJudge:
    """Rank 0 speaks for the run and its layers; every rank speaks for itself."""

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
        """What the next attempt is to know of this one."""
        return self._evaluator.known_to_next

    def state(self) -> bytes:
        return self._evaluator.state()

    def with_rules(self, rule_set: RuleSet) -> "StreamJudge":
        """The same with other rules: what did not change goes on, what did starts cold."""
        return StreamJudge(self._rank, rule_set, self.state())


def judged_at(rank: int, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that a rank's stream is judged by."""
    return [
        rule for rule in rules if rule.absence is None and (rank == 0 or rule.scope is Scope.RANK)
    ]


def rows_of(frames: Sequence[CommittedFrame]) -> Iterator[Rows]:
    """What is judged of each frame; nothing of one without steps. Raises FrameError."""
    for committed in frames:
        if committed.frame.num_steps:
            yield Rows.from_frame(committed.frame, committed.layout)


def are_late(frames: Sequence[CommittedFrame]) -> bool:
    """Whether nobody waits for what is said of them: all were sent after the fact."""
    return all(committed.late for committed in frames)
