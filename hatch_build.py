"""Compiles the hook's optional kernel while the package is built, where a C compiler is there.

Without one, or with RUNWATCH_PURE=1 (for a wheel that fits every machine), the package is the
same but for that one file, and reads gradients with numpy.
"""

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE: Final = Path("hooks/runwatch_hooks/statistics/one_pass.c")
_LIBRARY: Final = "_one_pass.so"
# Sums may be reordered, or they could not use wide registers. NaN and infinity keep their meaning.
_FLAGS: Final = ("-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
_TIMEOUT_S: Final = 60


class OnePassBuildHook(BuildHookInterface):
    """Called by hatchling for wheels, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / _SOURCE
        self._folder = Path(tempfile.mkdtemp(prefix="runwatch-build-"))
        built = self._folder / _LIBRARY
        if os.environ.get("RUNWATCH_PURE") == "1" or not _compile(source, built):
            return
        if version == "editable":
            # Put in place whole: a library that is in use may be replaced, but not written to.
            landing = source.with_name(_LIBRARY + ".new")
            shutil.copyfile(built, landing)
            landing.replace(source.with_name(_LIBRARY))
            return
        build_data["force_include"][str(built)] = f"runwatch_hooks/statistics/{_LIBRARY}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _compile(source: Path, library: Path) -> bool:
    """Whether one of two ways worked: the second is for where functions cannot be cloned."""
    command = [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS, "-shared", "-fPIC"]
    files = ["-o", str(library), str(source)]
    return any(_runs([*command, *more, *files]) for more in (["-DCLONES"], []))


def _runs(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
