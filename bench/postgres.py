"""Our load into PostgreSQL beside a bare COPY of the same rows by psycopg, in one run against one server.

Ours is the whole way of a task: begin, Arrow batches through COPY, PREPARE TRANSACTION, and COMMIT PREPARED. The bare
ones are psycopg's COPY of Python rows, and of text that was rendered before the clock started: what the server itself
can take. Only the ratios mean anything: the contenders run in turns, and the best of the rounds counts for each.

Run it with `python -m bench.postgres`.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
from tests.servers.database_servers import Postgres

from sparkonce.commit import Branch, query_digest, sink_digest, write_branch
from sparkonce.participants.postgres import postgres_participant
from sparkonce.participants.postgres.rows import copy_text

RATIO_WANTED = 0.7
BATCH_ROWS = 10_000
"""As many as Spark puts into an Arrow batch."""
COLUMNS = "id int8, customer text, amount float8, price numeric(12,2), note text, at timestamptz"


def main() -> None:
    """Starts a server, measures in turns, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.rows:,} rows of 6 columns, best of {options.rounds} rounds", flush=True)
    server = Postgres()
    try:
        report(measure(server, make_rows(options.rows), options.rounds), options.rows)
    finally:
        server.close()


def make_rows(count: int) -> list[pa.RecordBatch]:
    """Orders."""
    source, start = random.Random(5), datetime(2024, 1, 1, tzinfo=UTC)
    columns = {
        "id": pa.array(range(count), pa.int64()),
        "customer": pa.array([f"customer-{source.randrange(10_000)}" for _ in range(count)]),
        "amount": pa.array([source.random() * 1000 for _ in range(count)]),
        "price": pa.array([Decimal(source.randrange(10**6)) / 100 for _ in range(count)], pa.decimal128(12, 2)),
        "note": pa.array([f'said "{n}", and a comma' if n % 5 else None for n in range(count)]),
        "at": pa.array([start + timedelta(microseconds=n * 997) for n in range(count)], pa.timestamp("us", "UTC")),
    }
    return list(pa.table(columns).to_batches(max_chunksize=BATCH_ROWS))


def measure(server: Postgres, rows: list[pa.RecordBatch], rounds: int) -> dict[str, float]:
    """Seconds of each contender, the best of all rounds."""
    python_rows = [tuple(row.values()) for batch in rows for row in batch.to_pylist()]
    texts = [bytes(copy_text(batch)) for batch in rows]
    contenders: dict[str, Callable[[int], Any]] = {
        "psycopg COPY, Python rows": lambda _: copy_python_rows(server, python_rows),
        "psycopg COPY, ready text": lambda _: copy_ready_text(server, texts),
        "sparkonce append": lambda n: load(server, rows, n, mode="append"),
        "sparkonce upsert": lambda n: load(server, rows, n, mode="upsert", keys=["id"]),
        "sparkonce idempotent": lambda n: load(server, rows, n, mode="idempotent"),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for round_number in range(rounds):
        print(f"  round {round_number + 1} of {rounds}", flush=True)
        for name, contender in contenders.items():
            with server.connect() as connection:
                connection.execute("DROP TABLE IF EXISTS orders")
                connection.execute(f"CREATE TABLE orders ({COLUMNS})")
                if "upsert" in name:
                    connection.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
                connection.execute("CHECKPOINT")
            gc.collect()
            begun = time.perf_counter()
            contender(round_number)
            best[name] = min(best[name], time.perf_counter() - begun)
    return best


def copy_python_rows(server: Postgres, rows: list[tuple[Any, ...]]) -> None:
    """The usual loop."""
    with psycopg.connect(server.dsn) as connection, connection.cursor().copy("COPY orders FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def copy_ready_text(server: Postgres, texts: list[bytes]) -> None:
    """Nothing but the server's work."""
    statement = "COPY orders FROM STDIN (FORMAT csv)"
    with (
        psycopg.connect(server.dsn, options="-c TimeZone=UTC") as connection,
        connection.cursor().copy(statement) as copy,
    ):
        for text in texts:
            copy.write(text)


def load(server: Postgres, rows: list[pa.RecordBatch], batch_id: int, **options: Any) -> None:
    """One task and the driver's commit."""
    sink = postgres_participant(server.dsn, table="orders", **options)
    sink.preflight(1)
    handle = write_branch(sink, Branch(query_digest("bench"), batch_id, 1, sink_digest(sink.name), 0, 0), rows)
    sink.commit([handle] if handle else [])


def report(seconds: dict[str, float], count: int) -> None:
    """One line a contender, with its ratio to both bare ones."""
    rows, text = seconds["psycopg COPY, Python rows"], seconds["psycopg COPY, ready text"]
    print(f"\n  {'':<28}{'rows/s':>12}{'to rows':>10}{'to text':>10}")
    for name, taken in seconds.items():
        print(f"  {name:<28}{count / taken:>12,.0f}{rows / taken:>10.2f}{text / taken:>10.2f}")
    reached = min(rows, text) / seconds["sparkonce append"] >= RATIO_WANTED
    print(f"\n  wanted: append at least {RATIO_WANTED} of either bare COPY: {'reached' if reached else 'not reached'}")


if __name__ == "__main__":
    main()
