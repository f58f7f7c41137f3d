"""Ends a process whose stop takes far too long.

Each wait of a stop has an end, but with a database that does not answer they add up to minutes, and
a thread that is stuck in a system call holds up the interpreter's end for ever. What was
acknowledged is committed, so ending at once loses nothing of it.
"""

import faulthandler
import logging
import os
import threading
from typing import Final

log = logging.getLogger(__name__)

EXIT_CODE: Final = 1
"""Of a process that was ended here; 0 is that of a stop in order."""


def end_after(limit_s: float) -> None:
    """End this process after so many seconds, wherever it hangs, unless it has ended by then."""
    timer = threading.Timer(limit_s, _end, (limit_s,))
    timer.daemon = True
    timer.start()


def _end(limit_s: float) -> None:
    log.critical(
        "still stopping after %g s: this process ends now; nothing that was acknowledged is lost, "
        "and what its threads wait for is shown below",
        limit_s,
    )
    faulthandler.dump_traceback()
    os._exit(EXIT_CODE)
