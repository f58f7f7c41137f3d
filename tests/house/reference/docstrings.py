"""Tables of what the code says of itself."""

from runwatch_server.web.field_docs import field_texts, one_line

__all__ = ["field_texts", "one_line", "table"]


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A markdown table; bars within cells are kept from ending them."""
    lines = [heading, ["---"] * len(heading), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
