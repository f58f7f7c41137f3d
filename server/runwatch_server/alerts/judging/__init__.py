"""Runs the evaluators of streams: on a thread of the service, or in processes."""

from runwatch_server.alerts.judging.judge import Judge, JudgeLostError, Judging, JudgingFailedError
from runwatch_server.alerts.judging.processes import ProcessJudging
from runwatch_server.alerts.judging.stream_judge import StreamJudge
from runwatch_server.alerts.judging.threaded import ThreadJudging

__all__ = [
    "Judge",
    "JudgeLostError",
    "Judging",
    "JudgingFailedError",
    "ProcessJudging",
    "StreamJudge",
    "ThreadJudging",
]
