"""Renders our own Markdown documents as HTML; HTML in them is shown as text."""

import re
from typing import Final

from markdown_it import MarkdownIt
from markupsafe import Markup

_SISTER: Final = re.compile(r"^([a-z0-9-]+)\.md$")


def to_html(text: str) -> Markup:
    """Markdown as HTML. Links to another document, `gradient-spike.md`, lead to its page."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _SISTER.sub(r"/runbooks/\1", str(child.attrGet("href"))))
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))
