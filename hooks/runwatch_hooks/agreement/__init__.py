"""All ranks carry out a command at the same step, or none does."""

from runwatch_hooks.agreement.agreement import Agreement
from runwatch_hooks.agreement.ballots import Proposal, Standing, Verdict
from runwatch_hooks.agreement.gate import Ended
from runwatch_hooks.agreement.meeting import Meeting
from runwatch_hooks.agreement.patience import Patience

__all__ = ["Agreement", "Ended", "Meeting", "Patience", "Proposal", "Standing", "Verdict"]
