"""The budgets, each a figure that was counted once and only goes down, and the one to reach."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("budgets.toml")
TOLERANCE: Final = 0.03
"""Of sizes: what a change may add that is about something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    name: str
    what: str
    today: float
    target: float
    is_way: bool = False
    """The way of a step, an alert or a command: without tolerance."""
    is_floor: bool = False
    """More is better."""
    advice: str

    @property
    def bound(self) -> float:
        """The last figure that passes."""
        if self.is_way:
            return self.today
        return self.today * (1 - TOLERANCE if self.is_floor else 1 + TOLERANCE)

    def holds(self, figure: float) -> bool:
        return figure >= self.bound if self.is_floor else figure <= self.bound

    def is_better(self, figure: float) -> bool:
        """Than what the table has."""
        return figure > self.today if self.is_floor else figure < self.today

    def refusal(self, figure: float) -> str:
        """Why a figure does not pass, and what to do."""
        return (
            f"{self.what}: {figure:g}, and the budget is {self.today:g} "
            f"(to reach: {self.target:g}). {self.advice}"
        )


def budgets() -> list[Budget]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [Budget(name=name, **entry) for name, entry in table.items()]


def lower(figures: dict[str, float]) -> None:
    """Write the figures that are better than the table's into it."""
    text = TABLE.read_text(encoding="utf-8")
    for budget in budgets():
        figure = round(figures[budget.name], 2)
        if budget.is_better(figure):
            before, heading, rest = text.partition(f"[{budget.name}]\n")
            rest = rest.replace(f"today = {budget.today:g}\n", f"today = {figure:g}\n", 1)
            text = before + heading + rest
    TABLE.write_text(text, encoding="utf-8")
