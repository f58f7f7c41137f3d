"""Where the promise is kept that training is never harmed: a fault of ours ends here."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class Faults:
    """Counts what went wrong inside the hook, and says it once a place."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[str] = set()
        self._untold: list[str] = []

    @contextmanager
    def guard(
        self, place: str, disable: Callable[[], None] | None = None
    ) -> Generator[None, None, None]:
        """Run a block whose faults must not reach the training loop; `disable` what had one."""
        try:
            yield
        except Exception as fault:  # noqa: BLE001  training is never harmed, whatever we did wrong
            self._note(place, fault, is_off=disable is not None)
            if disable is not None:
                disable()

    def untold(self) -> list[str]:
        """Descriptions of faults that the service has not been told of, each once."""
        untold, self._untold = self._untold, []
        return untold

    def _note(self, place: str, fault: Exception, *, is_off: bool) -> None:
        self.count += 1
        if place not in self._told:
            self._told.add(place)
            self._untold.append(f"{place}: {type(fault).__name__}: {fault}"[:500])
            what = "this part is off" if is_off else "left out"
            log.warning("runwatch: fault at %s, %s; training goes on", place, what, exc_info=fault)
