"""When a saved state counts as good: after enough healthy steps, its probation.

When a state is captured, nobody can know whether it is already spoiled: a bad update shows in the
loss some steps later. So a state is *good* only once `needed_steps` healthy steps in a row have
followed it. One unhealthy step among them makes it suspect forever.

A rollback because of trouble that began at step s is stricter: the healthy steps must be before s,
because the alert says that the steps from s on were not healthy, even if the trainer's simpler
check saw nothing. If no state had enough steps before s, the newest one is taken whose steps up to
s - 1 were all healthy: the rule judged each of those steps and did not fire.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Probation:
    """The probation of the state after `step`."""

    step: int
    needed_steps: int
    is_good: bool = False
    unhealthy_step: int | None = None
    """The first unhealthy step seen while on probation."""

    @property
    def is_suspect(self) -> bool:
        return self.unhealthy_step is not None

    def note(self, step: int, *, healthy: bool) -> bool:
        """Judge by one more step, in step order. Returns whether the state became good by it."""
        if self.is_good or self.is_suspect or step <= self.step:
            return False
        if not healthy:
            self.unhealthy_step = step
            return False
        self.is_good = step >= self.step + self.needed_steps
        return self.is_good

    def rewind(self, to_step: int) -> None:
        """The steps after `to_step` are undone, and no longer count against this state."""
        if self.unhealthy_step is not None and self.unhealthy_step > to_step:
            self.unhealthy_step = None

    def is_good_before(self, step: int | None) -> bool:
        """Whether it is good by steps before this one alone; None: by any steps."""
        return self.is_good and (step is None or self.step + self.needed_steps < step)

    def was_healthy_until(self, step: int) -> bool:
        """Whether it was captured before this step, and no step between was unhealthy."""
        return self.step < step and (self.unhealthy_step is None or self.unhealthy_step >= step)
