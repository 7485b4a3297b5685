"""One range of offsets → Arrow batches of its visible records. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sparkonce.fetch.ahead import FetchAhead, ReadSettings
from sparkonce.fetch.ranges import OffsetRange
from sparkonce.records import DecodeLimits, decode
from sparkonce.wire import Client


def read_range(
    client: Client, wanted: OffsetRange, settings: ReadSettings, limits: DecodeLimits | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of [start, end), exactly those, in order. Columns as `sparkonce.records.SCHEMA`."""
    ahead = FetchAhead(client, wanted, settings)
    decode_limits = limits or DecodeLimits()
    while (piece := ahead.take()) is not None:
        batches = decode(
            piece.records, piece.headers, piece.selected, source=wanted.topic_partition, limits=decode_limits
        )
        for arrow_batch in batches:
            ahead.glance()
            rows = rows_within(arrow_batch, wanted.start, wanted.end)
            if rows.num_rows:
                yield rows


def rows_within(arrow_batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows with offsets in [start, end); a record batch may reach beyond the range on both sides."""
    first, last = np.searchsorted(arrow_batch["offset"].to_numpy(), [start, end])
    return arrow_batch.slice(first, last - first)
