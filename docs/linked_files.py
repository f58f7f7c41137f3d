"""For mkdocs: files of the repository that pages link to, and that lie outside of docs/.

On a forge such a link leads to the file in its folder. The site has no such folder: the file is
copied into it, below `source/`, and the link led there. Text in markdown is copied as text, for its
own links would lead nowhere.
"""

import os
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)(?=[)#])")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for file in list(files.documentation_pages()):
        for target in _LINK.findall(file.content_string):
            found = _outside(file.src_uri, target)
            if found is not None and files.get_file_from_path(_copy_of(found)) is None:
                files.append(
                    File.generated(config, _copy_of(found), abs_src_path=str(ROOT / found))
                )
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    def led(match: re.Match[str]) -> str:
        found = _outside(page.file.src_uri, match[0])
        if found is None:
            return match[0]
        return os.path.relpath(_copy_of(found), Path(page.file.src_uri).parent)

    return _LINK.sub(led, markdown)


def _outside(source: str, target: str) -> Path | None:
    """The file's place in the repository; None for one of docs/, and for what is no file."""
    path = (ROOT / "docs" / source).parent.joinpath(target).resolve()
    is_ours = path.is_file() and path.is_relative_to(ROOT)
    return path.relative_to(ROOT) if is_ours and ROOT / "docs" not in path.parents else None


def _copy_of(found: Path) -> str:
    return f"source/{found}".removesuffix(".md") + (".txt" if found.suffix == ".md" else "")
