"""What can keep the demo from running.

RunwatchError
└── DemoError
    ├── TrainingFailedError     a training ended before its time
    └── ServiceFailedError      the service did not start, or did not answer
"""

from runwatch.errors import RunwatchError


class DemoError(RunwatchError):
    """The demo cannot go on; the message says what to look at."""


class TrainingFailedError(DemoError):
    pass


class ServiceFailedError(DemoError):
    pass
