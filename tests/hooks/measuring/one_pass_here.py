"""The compiled reader, which must be there wherever it can be compiled."""

import os
import shlex
import shutil

import pytest

from runwatch_hooks.measuring.one_pass import OnePass, load_one_pass


def one_pass_here() -> OnePass:
    """Skips the test only where there is no C compiler: a library that is missing or does not load
    beside one is a fault of the installation, and every reading would be slower unseen."""
    found = load_one_pass()
    if found is None:
        compiler = shlex.split(os.environ.get("CC", "cc"))[0]
        if shutil.which(compiler) is None:
            pytest.skip("no C compiler")
        pytest.fail(f"{compiler} is there, and _one_pass.so does not load: make install")
    return found
