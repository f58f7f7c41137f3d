"""docs/openapi.json: `make docs` writes it, and a test compares it with the code."""

import sys
from pathlib import Path
from typing import Final

import msgspec

from runwatch_server.app import make_app
from runwatch_server.settings import Settings

PAGE: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def rendered() -> str:
    """The interface as it is in the code, in a form whose differences can be read."""
    document = make_app(Settings()).openapi()
    text = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1)
    return text.decode() + "\n"


def main() -> None:
    PAGE.write_text(rendered(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
