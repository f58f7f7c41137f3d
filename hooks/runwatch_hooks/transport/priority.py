"""Threads that yield to the training thread."""

import os
import sys
import threading
from typing import Final

from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

LOWEST_NICENESS: Final = 19


def yield_to_training() -> None:
    """Gives the calling thread the lowest priority, where one thread can have its own.

    Measured with torch on 2 cores: a neighbour at normal priority that is busy a quarter of the
    time stretches a step by a third, because each parallel region waits for its last core; at
    niceness 19 it costs nothing that can be measured.
    """
    if sys.platform != "linux":  # elsewhere the call would speak of the whole process
        return
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_NICENESS)
    except OSError as error:
        log.info("the thread keeps its priority: %s", error)
