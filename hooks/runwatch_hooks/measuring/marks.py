"""Places in an accelerator's stream, of which the host can ask later whether they have passed."""

import torch


def set_mark(device: torch.device, *, is_timed: bool = False) -> torch.Event | None:
    """A mark behind all that is queued on the device's current stream; None where nothing is
    queued and all is done at once: in the host's memory, and of tensors without any (`meta`).

    The stream is given, as an event that is told nothing is recorded on the *current* device,
    whatever device it was made for: it would have passed before the work that it stands for.
    """
    if device.type in ("cpu", "meta"):
        return None
    event = torch.Event(device, enable_timing=is_timed)
    event.record(torch.accelerator.current_stream(device))
    return event


def has_passed(mark: torch.Event | None) -> bool:
    """Whether all that was queued before it is done. Waits for nothing."""
    return mark is None or bool(mark.query())


def wait_for(mark: torch.Event | None) -> None:
    """Until it has passed: at the end of a run, on a thread that writes to the disk, or for a
    state to go back to. Never while a step is trained."""
    if mark is not None:
        mark.synchronize()  # host sync: asked for
