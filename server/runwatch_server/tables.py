"""The metadata to which every domain's `tables.py` adds its tables.

Times are Unix seconds (UTC) and JSON is text written by msgspec, so that SQLite and PostgreSQL
hold the same. Every table that grows with runs has `run_id` first in its key (docs/design.md,
section 4.3).
"""

from typing import Final

import sqlalchemy as sa

metadata: Final = sa.MetaData()
