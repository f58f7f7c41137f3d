"""The one catalogue of tables that every domain's `tables.py` adds to.

Times are Unix seconds (UTC), JSON is text written by msgspec, so that SQLite and PostgreSQL
hold the same. Every table that grows with runs has `run_id` first in its key (docs/design.md,
section 4.3).
"""

from typing import Final

import sqlalchemy as sa

metadata: Final = sa.MetaData()
