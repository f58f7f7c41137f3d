"""The compiled reader, which must be there wherever it can be compiled."""

import os
import shlex
import shutil
from typing import Final

import pytest

from runwatch_hooks.statistics.gradient_sums import NoOnePassError, OnePass, find_one_pass

COMPILER: Final = shlex.split(os.environ.get("CC", "cc"))[0]


def one_pass_here() -> OnePass:
    """Skips the test only where there is no C compiler: a library that is missing or does not load
    beside one is a fault of the installation, and every reading would be slower unseen."""
    try:
        return find_one_pass()
    except NoOnePassError as error:
        if shutil.which(COMPILER) is None:
            pytest.skip("no C compiler")
        pytest.fail(f"{COMPILER} is there, but {error}: make install")
