"""Style sheets, scripts and Plotly, each under a URL that changes with its content.

All our own files share one version, so that a module's `import "./api.js"` finds the file of the
same version. The content of a URL never changes, so a browser requests it once.
"""

import gzip
import hashlib
import importlib.util
import mimetypes
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"

PLOTLY: Final = "plotly.min.js"
"""From the installed PyPI package, so that no third-party code is kept in this repository."""

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_LONG_BYTES: Final = 1024


@dataclass(frozen=True)
class Asset:
    """A file, read when it is first requested; Plotly's has 5 MB."""

    path: Path

    @cached_property
    def content(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def gzipped(self) -> bytes | None:
        """None if compression would not pay."""
        if len(self.content) < _LONG_BYTES:
            return None
        return gzip.compress(self.content, 6, mtime=0)

    @property
    def media_type(self) -> str:
        known = _TYPES.get(self.path.suffix) or mimetypes.guess_type(self.path.name)[0]
        return known or "application/octet-stream"


class Assets:
    """All files that the page loads, found by name only: no path of a request reaches the disk."""

    def __init__(self, folder: Path, plotly: Path) -> None:
        paths = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        own = _version(paths.values())
        self._files = {name: Asset(path) for name, path in paths.items()}
        self._versions = dict.fromkeys(paths, own)
        self._files[PLOTLY] = Asset(plotly)
        self._versions[PLOTLY] = _version([plotly])

    def url(self, name: str) -> str:
        """The URL of a file. Raises KeyError for an unknown name."""
        return f"/assets/{self._versions[name]}/{name}"

    def find(self, name: str) -> Asset | None:
        return self._files.get(name)

    def is_current(self, version: str, name: str) -> bool:
        """Whether the version is ours; otherwise another release serves the page, during an
        upgrade."""
        return self._versions.get(name) == version


@cache
def load_assets() -> Assets:
    """The files of this installation, which do not change while it runs."""
    return Assets(STATIC, _find_plotly())


def _find_plotly() -> Path:
    """Find Plotly's file without importing Plotly, which takes a while."""
    spec = importlib.util.find_spec("plotly")
    assert spec is not None, "an extra that the service is installed with names it"
    assert spec.origin is not None, "an ordinary package"
    return Path(spec.origin).parent / "package_data" / PLOTLY


def _version(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
