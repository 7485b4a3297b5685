"""Arrow columns → Kafka record batches: compressed, cut to size, complete but for their producer (see `seal`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from sparkonce.errors import UsageError
from sparkonce.model import NO_PRODUCER
from sparkonce.records.buffers import Bytes, Longs
from sparkonce.records.columns import RecordColumns
from sparkonce.records.compression import compress
from sparkonce.records.kernels import encode_records
from sparkonce.records.layout import (
    ATTRIBUTES_POSITION,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    Codec,
)
from sparkonce.records.seal import NO_SEQUENCE

BATCH_BYTES_MAX = 1_048_588
"""Kafka's default for a topic's `max.message.bytes`: a batch's size with its header, after compression."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch without a producer, and how many records it has."""

    data: bytes
    record_count: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Encoded, not yet compressed records (a part of the scratch buffer), and what the header must say of them."""

    records: Bytes
    first: int
    count: int
    base_timestamp: int
    max_timestamp: int


def encode(
    columns: RecordColumns,
    rows: Longs | None = None,
    *,
    codec: Codec = Codec.lz4,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[EncodedBatch]:
    """Encodes the given rows (all of them if None), in that order, as batches of at most `batch_bytes_max` bytes.

    Batches are cut by their size before compression, so that a reader's memory is bounded too; only a record that is
    alone larger than that may rely on compression to get under the limit.
    """
    if batch_bytes_max <= HEADER_BYTES:
        raise UsageError(f"a limit of {batch_bytes_max} bytes leaves no room after the {HEADER_BYTES}-byte header")
    if rows is None:
        rows = np.arange(len(columns), dtype=np.int64)
    elif len(rows) and (rows.min() < 0 or rows.max() >= len(columns)):
        raise UsageError(f"rows {rows.min()} to {rows.max()} were chosen from {len(columns)}")
    scratch = np.empty(batch_bytes_max - HEADER_BYTES, np.uint8)
    first = 0
    while first < len(rows):
        piece = _next_piece(columns, rows, first, scratch)
        yield from _finish(columns, rows, piece, codec, batch_bytes_max)
        first += piece.count


def _next_piece(columns: RecordColumns, rows: Longs, first: int, scratch: Bytes) -> _Piece:
    """As many records as `scratch` holds, or one if not even that fits."""
    parts = (columns.keys, columns.values, columns.headers, columns.timestamps)
    count, used, max_timestamp, missing = encode_records(rows, first, *parts, scratch)
    if count == 0 and missing:
        scratch = np.empty(missing, np.uint8)
        count, used, max_timestamp, _ = encode_records(rows[: first + 1], first, *parts, scratch)
    return _Piece(scratch[:used], first, count, int(columns.timestamps[rows[first]]), max_timestamp)


def _finish(
    columns: RecordColumns, rows: Longs, piece: _Piece, codec: Codec, batch_bytes_max: int
) -> Iterator[EncodedBatch]:
    """Compresses; what incompressible records made too large is halved until it fits."""
    body = compress(codec, piece.records.data)
    if HEADER_BYTES + len(body) <= batch_bytes_max:
        yield EncodedBatch(_with_header(piece, codec, body), piece.count)
        return
    if piece.count == 1:
        raise UsageError(
            f"a record of {len(piece.records)} bytes makes a batch of {HEADER_BYTES + len(body)} bytes "
            f"({codec.name}), over the limit of {batch_bytes_max}; raise the topic's max.message.bytes and the "
            f"batch size of the sink, or make the record smaller"
        )
    scratch = np.empty(len(piece.records), np.uint8)
    middle = piece.first + piece.count // 2
    for start, end in ((piece.first, middle), (middle, piece.first + piece.count)):
        yield from _finish(columns, rows, _next_piece(columns, rows[:end], start, scratch), codec, batch_bytes_max)


def _with_header(piece: _Piece, codec: Codec, body: bytes) -> bytes:
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - LENGTH_END + len(body),
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=piece.count - 1,
        base_timestamp=piece.base_timestamp,
        max_timestamp=piece.max_timestamp,
        producer_id=NO_PRODUCER.producer_id,
        producer_epoch=NO_PRODUCER.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=piece.count,
    )
    stamped = bytearray(HEADER.pack(*header))
    crc = crc32c(body, crc32c(stamped[ATTRIBUTES_POSITION:]))
    CRC.pack_into(stamped, CRC_POSITION, crc)
    return b"".join((stamped, body))
