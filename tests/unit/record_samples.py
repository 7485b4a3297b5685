"""Records for tests: random ones, as Arrow columns, and decoded back into plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from sparkonce.records import RecordColumns, decode, read_headers, record_columns

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True)
class Record:
    """One record as a person thinks of it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def records() -> st.SearchStrategy[Record]:
    """Any record that Kafka allows, with timestamps that jump forth and back."""
    binary = st.one_of(st.none(), st.binary(max_size=200))
    headers = st.lists(st.tuples(st.text(max_size=10), st.one_of(st.none(), st.binary(max_size=20))), max_size=3)
    return st.builds(Record, binary, binary, st.integers(-1, 2**42), headers)


def columns_of(rows: Sequence[Record], before: int = 0) -> RecordColumns:
    """Arrow columns of these rows; with `before`, slices of columns that have so many other rows in front."""
    padding = [Record(b"pad", None, 3, [("pad", b"pad")])] * before
    every = [*padding, *rows]
    headers = [[{"key": key, "value": value} for key, value in row.headers] or None for row in every]
    return record_columns(
        pa.array([row.value for row in every], pa.binary()).slice(before),
        key=pa.array([row.key for row in every], pa.binary()).slice(before),
        headers=pa.array(headers, HEADERS_TYPE).slice(before),
        timestamp=pa.array([row.timestamp for row in every], pa.int64()).slice(before),
        default_timestamp_ms=0,
    )


def rows_of(arrow_batch: pa.RecordBatch) -> list[Record]:
    """What `decode` gave, as plain values."""
    timestamps = arrow_batch["timestamp"].cast(pa.int64()).to_pylist()
    return [
        Record(row["key"], row["value"], timestamp, [(h["key"], h["value"]) for h in row["headers"] or []])
        for timestamp, row in zip(timestamps, arrow_batch.drop_columns(["timestamp"]).to_pylist(), strict=True)
    ]


def decoded(data: bytes | bytearray) -> list[Record]:
    """All records of a buffer of batches, by our decoder."""
    return [row for arrow_batch in decode(data, read_headers(data)) for row in rows_of(arrow_batch)]
