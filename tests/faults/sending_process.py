"""A trainer's rank that sends until it is fenced off, in a process that can be stopped.

    KEY=... python -m tests.faults.sending_process URL RUN_ID HISTORY

Ends with 9 when it is told that a newer attempt has begun.
"""

import itertools
import os
import sys
from pathlib import Path

import urllib3
from tests.faults.history import History
from tests.faults.recording import RecordingSender

FENCED = 9


def main() -> int:
    url, run_id, history = sys.argv[1:]
    http = urllib3.PoolManager(retries=False, timeout=60.0)
    sender = RecordingSender(url, os.environ["KEY"], run_id, http, history=History(Path(history)))
    for seq in itertools.count(1):
        try:
            # What was on its way when the process was stopped may have been cut off meanwhile.
            sender.send_until_acknowledged(seq, [float(seq)] * 2, first_step=2 * (seq - 1))
        except AssertionError as refused:
            if "stale_attempt" in str(refused):
                return FENCED
            raise
    raise AssertionError("there is always another frame")


if __name__ == "__main__":
    sys.exit(main())
