"""The phase of a run: it trains, or evaluates, writes a checkpoint, compiles, or is idle."""

from runwatch.vocabulary import Phase


class Phases:
    """A stack of nested phases. At its bottom is what the run does outside of any `phase` block."""

    def __init__(self) -> None:
        self._open = [Phase.INIT]

    @property
    def now(self) -> Phase:
        """The innermost phase."""
        return self._open[-1]

    @property
    def are_open(self) -> bool:
        """Whether a phase was entered and not yet left."""
        return len(self._open) > 1

    def settle(self, phase: Phase) -> None:
        """Set the phase at the bottom: `init`, `train` or `idle`."""
        self._open[0] = phase

    def enter(self, name: str) -> None:
        """Enter `eval`, `checkpoint` or `compile`; any other name is recorded as `idle`."""
        self._open.append(Phase.named(name))

    def leave(self) -> None:
        self._open.pop()
