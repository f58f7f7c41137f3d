"""Names of the rules that the service itself judges; no rule file may use them."""

from typing import Final

from runwatch.rules import IN_CODE_NAMES

RUN_LOST: Final = "RunLost"
RANK_LOST: Final = "RankLost"
RUN_FAILED: Final = "RunFailed"
GROUP_OUTLIER: Final = "GroupOutlier"
PROTECTED_NAMES: Final = IN_CODE_NAMES | {RUN_LOST, RANK_LOST, RUN_FAILED, GROUP_OUTLIER}
