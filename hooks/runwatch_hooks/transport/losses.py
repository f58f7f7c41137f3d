"""Rows and events lost on the way to the service, which are reported as gaps."""

from dataclasses import dataclass, replace
from enum import StrEnum

from runwatch.frames import Event


class LossReason(StrEnum):
    QUEUE_FULL = "queue_full"
    """The sender did not keep up."""
    SPOOL_FULL = "spool_full"
    """The service was away for longer than the spool has room for."""
    SPOOL_DAMAGED = "spool_damaged"
    """A record on disk failed its checksum."""
    INVALID = "invalid"
    """Rows that cannot be a frame: a name too long, or columns that do not match the layout."""
    REFUSED = "refused"
    """The service refused the frame; its bytes are kept in the spool's folder."""


@dataclass(frozen=True, slots=True)
class Loss:
    reason: LossReason
    first_step: int
    last_step: int
    num_rows: int = 0
    num_events: int = 0

    def joined(self, later: "Loss") -> "Loss":
        return replace(
            self,
            first_step=min(self.first_step, later.first_step),
            last_step=max(self.last_step, later.last_step),
            num_rows=self.num_rows + later.num_rows,
            num_events=self.num_events + later.num_events,
        )

    def to_event(self, at: float) -> Event:
        """The `gap` event that reports it, in the next frame."""
        return Event(
            step=self.first_step,
            kind="gap",
            at=at,
            detail={
                "reason": self.reason.value,
                "last_step": self.last_step,
                "lost_rows": self.num_rows,
                "lost_events": self.num_events,
            },
        )


def loss_of(event: Event) -> Loss | None:
    """The loss that a `gap` event reports; None for any other event."""
    detail = event.detail
    reason, last_step = detail.get("reason"), detail.get("last_step")
    num_rows, num_events = detail.get("lost_rows"), detail.get("lost_events")
    if event.kind != "gap" or reason not in list(LossReason):
        return None
    if not (
        isinstance(last_step, int) and isinstance(num_rows, int) and isinstance(num_events, int)
    ):
        return None
    return Loss(LossReason(str(reason)), event.step, last_step, num_rows, num_events)


class LossLedger:
    """Losses not yet reported in a frame, one for each reason, and the count of all lost rows."""

    def __init__(self) -> None:
        self._untold: dict[LossReason, Loss] = {}
        self.num_rows = 0

    def add(self, loss: Loss) -> None:
        self.num_rows += loss.num_rows
        self.tell_again(loss)

    def tell_again(self, loss: Loss) -> None:
        """Report a counted loss again, because the frame with its report was lost."""
        earlier = self._untold.get(loss.reason)
        self._untold[loss.reason] = loss if earlier is None else earlier.joined(loss)

    def take_events(self, at: float) -> list[Event]:
        losses, self._untold = self._untold, {}
        return [loss.to_event(at) for loss in losses.values()]
