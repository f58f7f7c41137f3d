"""What does it cost PostgreSQL to remove runs: by deleting rows, as retention does, beside dropping
partitions, as if each run were one?

Ten runs of 2000 frames of 16 KB, of which five go: in transactions of 500 rows, vacuumed; then as
many are written anew, to see whether the room is used again.

    python -m benchmarks.deletion postgresql://runwatch@127.0.0.1/empty
"""

import argparse
import asyncio
import time
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
from benchmarks.harness import machine, markdown_table

_RUNS: Final = 10
_GONE: Final = 5
_FRAMES: Final = 2000
_CHUNK: Final = 500
_COLUMNS: Final = """(run_id text, attempt int, rank int, seq bigint, body bytea,
    PRIMARY KEY (run_id, attempt, rank, seq))"""
_BODIES: Final = """CREATE TABLE bodies AS SELECT n, convert_to((SELECT
    string_agg(md5((n * 1000 + i)::text), '') FROM generate_series(1, 500) i), 'UTF8') AS body
    FROM generate_series(1, 200) n"""


async def fill(database: Any, table: str, runs: range) -> None:
    for run in runs:
        if table == "parted":
            place = f"parted_{run}"
            await database.execute(
                f"CREATE TABLE {place} PARTITION OF parted FOR VALUES IN ('{run}')"
            )
        await database.execute(
            f"INSERT INTO {table} SELECT '{run}', 1, 0, s, "
            f"(SELECT body FROM bodies WHERE n = 1 + s % 200) FROM generate_series(1, {_FRAMES}) s"
        )


async def delete(database: Any, run: int) -> None:
    """In chunks, each a transaction."""
    found = f"SELECT seq FROM whole WHERE run_id = '{run}' LIMIT {_CHUNK}"
    while seqs := [row["seq"] for row in await database.fetch(found)]:
        await database.execute(f"DELETE FROM whole WHERE run_id = '{run}' AND seq = ANY($1)", seqs)


async def size_mib(database: Any) -> float:
    found = await database.fetchval("SELECT pg_total_relation_size('whole')")
    return int(found) / 2**20


async def measured(url: str) -> list[tuple[str, str]]:
    driver: Any = asyncpg
    database = await driver.connect(url)
    await database.execute(_BODIES)
    await database.execute(f"CREATE TABLE whole {_COLUMNS}")
    await database.execute(f"CREATE TABLE parted {_COLUMNS} PARTITION BY LIST (run_id)")
    for table in ("whole", "parted"):
        await fill(database, table, range(_RUNS))
    await database.execute("CHECKPOINT")
    rows = [("size before", f"{await size_mib(database):.0f} MiB")]
    began = time.perf_counter()
    for run in range(_GONE):
        await delete(database, run)
    rows.append((f"{_GONE * _FRAMES:,} rows deleted", f"{time.perf_counter() - began:.2f} s"))
    began = time.perf_counter()
    await database.execute("VACUUM whole")
    rows.append(("vacuumed", f"{time.perf_counter() - began:.2f} s"))
    await fill(database, "whole", range(_RUNS, _RUNS + _GONE))
    rows.append(("size after as many anew", f"{await size_mib(database):.0f} MiB"))
    began = time.perf_counter()
    for run in range(_GONE):
        await database.execute(f"DROP TABLE parted_{run}")
    rows.append((f"{_GONE} partitions dropped", f"{time.perf_counter() - began:.2f} s"))
    await database.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="an empty one")
    asked = parser.parse_args()
    print(machine())
    print(markdown_table(("what", "figure"), asyncio.run(measured(asked.database))))


if __name__ == "__main__":
    main()
