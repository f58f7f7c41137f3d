"""In which phase a run is: it trains, or something else lies between two of its steps."""

from runwatch.vocabulary import Phase


class Phases:
    """Phases that lie within one another; below them, whether the run trains."""

    def __init__(self) -> None:
        self._open = [Phase.INIT]

    @property
    def now(self) -> Phase:
        """The innermost."""
        return self._open[-1]

    @property
    def are_open(self) -> bool:
        """Whether one was entered and not left."""
        return len(self._open) > 1

    def settle(self, phase: Phase) -> None:
        """What the run is at where it is in no other phase."""
        self._open[0] = phase

    def enter(self, name: str) -> None:
        """`eval`, `checkpoint`, `compile`; any other is `idle`."""
        self._open.append(Phase.named(name))

    def leave(self) -> None:
        self._open.pop()
