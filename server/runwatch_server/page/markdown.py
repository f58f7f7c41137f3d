"""Markdown of our own documents as HTML; markup in it is shown, not obeyed."""

import re
from typing import Final

from markdown_it import MarkdownIt
from markupsafe import Markup

_SISTER: Final = re.compile(r"^([a-z0-9-]+)\.md$")


def to_html(text: str) -> Markup:
    """Links to a sister document, `gradient-spike.md`, lead to its page."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _SISTER.sub(r"/runbooks/\1", str(child.attrGet("href"))))
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))
