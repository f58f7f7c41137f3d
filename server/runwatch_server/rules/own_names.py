"""Names of the rules that the service itself judges; no rule file may use them."""

from typing import Final

from runwatch.rules import IN_CODE_NAMES

RUN_LOST: Final = "RunLost"
RANK_LOST: Final = "RankLost"
RUN_FAILED: Final = "RunFailed"
ATTEMPT_REPLACED: Final = "AttemptReplaced"
GROUP_OUTLIER: Final = "GroupOutlier"
OUTLAST_RUNS: Final = frozenset({RUN_FAILED, ATTEMPT_REPLACED})
"""Their alerts stay open when the run ends."""
PROTECTED_NAMES: Final = IN_CODE_NAMES | OUTLAST_RUNS | {RUN_LOST, RANK_LOST, GROUP_OUTLIER}
