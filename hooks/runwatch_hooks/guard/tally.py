"""Counters that are added up on the devices where the events happen."""

import torch
from torch import Tensor

Number = float | Tensor


class Tally:
    """Named counters since the last `take`. Never waits for a device."""

    def __init__(self, *names: str) -> None:
        self._known = dict.fromkeys(names, 0.0)
        self._distant: dict[str, dict[torch.device, Tensor]] = {name: {} for name in names}

    def add(self, name: str, flag: Tensor) -> None:
        """Add a 0-dimensional flag, 1.0 or 0.0."""
        if flag.device.type == "cpu":
            self._known[name] += float(flag)
            return
        counts = self._distant[name]
        before = counts.get(flag.device)
        counts[flag.device] = flag if before is None else before + flag

    def take(self) -> dict[str, Number]:
        taken: dict[str, Number] = {}
        for name, known in self._known.items():
            total: Tensor | None = None
            for count in self._distant[name].values():
                total = (
                    count if total is None else total + count.to(total.device, non_blocking=True)
                )
            taken[name] = known if total is None else total + known
            self._known[name], self._distant[name] = 0.0, {}
        return taken
