"""Arrow columns seen as flat buffers, without a copy where Arrow's layout allows it. Checks types, not contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.errors import UsageError
from sparkonce.records.buffers import ALL_NULL, NO_NULLS, Binary, Bytes, Headers, Longs, read_only

_NO_BYTES = read_only(np.zeros(0, np.uint8))
_NO_LONGS = read_only(np.zeros(0, np.int64))
_NULL_COLUMN = Binary(_NO_LONGS, _NO_BYTES, _NO_BYTES, ALL_NULL)
NO_HEADERS = Headers(_NULL_COLUMN, _NULL_COLUMN, _NULL_COLUMN)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of records to encode; they share the memory of the Arrow arrays they were made from."""

    keys: Binary
    values: Binary
    headers: Headers
    timestamps: Longs

    def __len__(self) -> int:
        return len(self.timestamps)


def record_columns(
    value: pa.Array,
    *,
    key: pa.Array | None = None,
    headers: pa.Array | None = None,
    timestamp: pa.Array | None = None,
    default_timestamp_ms: int,
) -> RecordColumns:
    """Takes Arrow columns of equal length. Where there is no timestamp, `default_timestamp_ms` stands."""
    for name, column in (("key", key), ("headers", headers), ("timestamp", timestamp)):
        if column is not None and len(column) != len(value):
            raise UsageError(f"column {name!r} has {len(column)} rows, column 'value' has {len(value)}")
    return RecordColumns(
        keys=binary_column("key", key),
        values=binary_column("value", value),
        headers=_header_column(headers),
        timestamps=_timestamps_ms(timestamp, len(value), default_timestamp_ms),
    )


def binary_column(name: str, column: pa.Array | None) -> Binary:
    """A binary or string column (large or not); None stands for all null."""
    if column is None or pa.types.is_null(column.type):
        return _NULL_COLUMN
    column = _one_chunk(column)
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        width: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        width = np.int64
    elif pa.types.is_binary_view(kind) or pa.types.is_string_view(kind) or pa.types.is_fixed_size_binary(kind):
        return binary_column(name, column.cast(pa.large_binary()))
    else:
        raise UsageError(f"column {name!r} must be binary or string, but it is {kind}")
    validity, offsets, data = column.buffers()
    starts = _view(offsets, width)[column.offset : column.offset + len(column) + 1]
    if len(starts) == 0:  # Arrow allows an empty column to have an empty offsets buffer.
        starts = np.zeros(1, width)
    return Binary(read_only(starts.astype(np.int64)), _view(data, np.uint8), *_validity(column, validity))


def _header_column(column: pa.Array | None) -> Headers:
    if column is None or pa.types.is_null(column.type):
        return NO_HEADERS
    column = _one_chunk(column)
    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    names = [field.name for field in kind.value_type] if lists and pa.types.is_struct(kind.value_type) else []
    if names != ["key", "value"]:
        raise UsageError(f"column 'headers' must be list<struct<key, value>>, but it is {kind}")
    # `offsets` and `values` of a sliced list are those of the whole, which fit together.
    keys, values = column.values.flatten()
    key_column = binary_column("headers.key", keys)
    if keys.null_count and pc.any(keys.is_null().filter(_used_headers(column))).as_py():
        raise UsageError("a header has a null key; Kafka's header keys are never null")
    starts = read_only(column.offsets.to_numpy(zero_copy_only=False).astype(np.int64))
    lists_column = Binary(starts, _NO_BYTES, *_validity(column, column.buffers()[0]))
    return Headers(lists_column, key_column, binary_column("headers.value", values))


def _used_headers(column: pa.Array) -> pa.Array:
    """Which entries of the values belong to a row that is not null: others may hold anything."""
    used = np.zeros(len(column.values), bool)
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    starts = np.repeat(offsets[:-1] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    used[np.arange(len(starts)) + starts] = True
    return pa.array(used)


def _timestamps_ms(column: pa.Array | None, rows: int, default_timestamp_ms: int) -> Longs:
    if column is None or pa.types.is_null(column.type):
        return read_only(np.full(rows, default_timestamp_ms, np.int64))
    column = _one_chunk(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_int64(column.type):
        raise UsageError(f"column 'timestamp' must be a timestamp, or int64 milliseconds, but it is {column.type}")
    return read_only(column.fill_null(default_timestamp_ms).to_numpy(zero_copy_only=False))


def _one_chunk(column: pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _validity(column: pa.Array, bitmap: pa.Buffer | None) -> tuple[Bytes, int]:
    if bitmap is None or column.null_count == 0:
        return _NO_BYTES, NO_NULLS
    return _view(bitmap, np.uint8), column.offset


def _view(buffer: pa.Buffer | None, dtype: type[np.generic]) -> Any:
    return read_only(np.zeros(0, dtype) if buffer is None else np.frombuffer(buffer, dtype))
