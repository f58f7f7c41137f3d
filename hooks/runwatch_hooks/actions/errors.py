"""Why an action on the run could not be carried out. The actor catches all of them.

ActionError (RunwatchError)
├── StateMismatchError       a saved state does not fit the live objects
├── NotPlainError            a value that cannot be written to disk without pickling a class
├── CheckpointError          a checkpoint that cannot be written
│   └── DamagedCheckpointError   one that cannot be read back as it was written
├── NoGoodStateError         nothing to roll back to
└── LrScaleError             an optimizer whose learning rate cannot be scaled
"""

from runwatch.errors import RunwatchError


class ActionError(RunwatchError):
    """An action that failed and changed nothing."""


class StateMismatchError(ActionError):
    pass


class NotPlainError(ActionError):
    pass


class CheckpointError(ActionError):
    pass


class DamagedCheckpointError(CheckpointError):
    pass


class NoGoodStateError(ActionError):
    pass


class LrScaleError(ActionError):
    pass
