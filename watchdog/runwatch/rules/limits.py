"""How much a rule may ask for; checked when it is made, not when it runs."""

from typing import Final

MAX_TEXT_CHARS: Final = 1024
"""Checked before the text is parsed: Python's parser takes a second for 10^5 comparisons."""
MAX_NODES: Final = 200
MAX_DEPTH: Final = 20
MAX_WINDOW: Final = 4096
MAX_WINDOWS_PER_RULE: Final = 12
MAX_RULES: Final = 200
MAX_STATE_BYTES: Final = 64 * 2**20
"""Of the windows of a whole document, with NOMINAL_LAYERS layers."""
NOMINAL_LAYERS: Final = 500
BYTES_PER_SAMPLE: Final = 32
"""A value and the step it belongs to, which a rollback needs in order to forget it; and as much
again for one that moves up when others are forgotten."""
