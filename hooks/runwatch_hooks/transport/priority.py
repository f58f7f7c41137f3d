"""Lowers the priority of the hook's threads, so that they do not slow the training thread."""

import os
import sys
import threading
from typing import Final

from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

LOWEST_NICENESS: Final = 19


def yield_to_training() -> None:
    """Give the calling thread the lowest priority, on Linux.

    Measured with torch on 2 cores: another thread at normal priority that is busy a quarter of the
    time makes a step a third longer, because each parallel region waits for its last core. At
    niceness 19 the cost cannot be measured.
    """
    if sys.platform != "linux":  # elsewhere the call would change the whole process
        return
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_NICENESS)
    except OSError as error:
        log.info("the thread keeps its priority: %s", error)
