"""When a saved state counts as good: the time it is on probation, and what is seen meanwhile.

A state is taken before anybody can know whether it is poisoned already: a bad update shows in
the loss some steps later. So it is *good* only once `needed_steps` healthy steps in a row have
followed it; one unhealthy step among them makes it suspect for good.

What is good for a rollback because of something that began at step s is stricter: the healthy
steps must lie before s, for of s and what follows the alarm says that they were not healthy,
even where the trainer's own, coarser eye saw nothing. Where no state had that many steps before
s, the newest one whose steps up to s - 1 were all healthy is taken: the onset itself then is the
evidence, since the rule judged every step before it and let it pass.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Probation:
    """Of the state after `step`."""

    step: int
    needed_steps: int
    is_good: bool = False
    unhealthy_step: int | None = None
    """The first unhealthy step seen while on probation."""

    @property
    def is_suspect(self) -> bool:
        return self.unhealthy_step is not None

    def note(self, step: int, *, healthy: bool) -> bool:
        """Judges by one more step; True where that made the state good. In step order."""
        if self.is_good or self.is_suspect or step <= self.step:
            return False
        if not healthy:
            self.unhealthy_step = step
            return False
        self.is_good = step >= self.step + self.needed_steps
        return self.is_good

    def rewind(self, to_step: int) -> None:
        """The steps after `to_step` are undone: what they showed was their own, perhaps."""
        if self.unhealthy_step is not None and self.unhealthy_step > to_step:
            self.unhealthy_step = None

    def is_good_before(self, step: int | None) -> bool:
        """Good, and found so by steps before this one alone."""
        return self.is_good and (step is None or self.step + self.needed_steps < step)

    def was_healthy_until(self, step: int) -> bool:
        """Taken before this step, with nothing unhealthy seen between."""
        return self.step < step and (self.unhealthy_step is None or self.unhealthy_step >= step)
