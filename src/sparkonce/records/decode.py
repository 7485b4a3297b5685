"""The records of fetched batches → Arrow columns. The bytes come from the network and are trusted in nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from sparkonce.errors import CorruptRecordsError
from sparkonce.model import TopicPartition
from sparkonce.records import kernels
from sparkonce.records.batches import BatchHeaders, place
from sparkonce.records.buffers import BinaryOut, Bools, Bytes, Ints, RecordsOut, read_only
from sparkonce.records.compression import BadCompressionError, NoRoomError, decompress_into
from sparkonce.records.layout import ATTRIBUTES_POSITION, HEADER_BYTES, RECORD_BYTES_MIN, Codec

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""What `decode` gives. `headers` is null for a record that has none, as in Spark's own source."""

_SCRATCH_GROWTH = 4
_REASONS = {
    kernels.BAD_VARINT: "a varint that does not end",
    kernels.BAD_RECORD_LENGTH: "a record length that does not fit into its batch",
    kernels.BAD_KEY_LENGTH: "a key length that does not fit into its record",
    kernels.BAD_VALUE_LENGTH: "a value length that does not fit into its record",
    kernels.BAD_HEADER: "headers that do not fill their record",
    kernels.BAD_OFFSET_DELTA: "an offset out of order or outside its batch",
    kernels.RECORDS_LEFT_OVER: "bytes left over after its last record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """How much memory decoding may take; the peak is a small multiple of the larger of the two."""

    batch_bytes_max: int = 256 * 1024 * 1024
    """A record batch that decompresses to more than this is refused. Below 2 GiB, Arrow's limit for a column."""
    arrow_batch_bytes: int = 2 * 1024 * 1024
    """Record batches are decoded together until they have this many bytes of records."""


DEFAULT_LIMITS = DecodeLimits()


@dataclass(slots=True)
class _Group:
    """Batches whose records lie in one buffer and are parsed together."""

    data: Bytes
    batches: list[int] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    records_bytes: int = 0

    def add(self, batch: int, start: int, size: int) -> None:
        self.batches.append(batch)
        self.spans.append((start, start + size))
        self.records_bytes += size


@dataclass(slots=True)
class _Scratch:
    """Where batches are decompressed, one behind the other; the buffer is used again for the next group."""

    limits: DecodeLimits
    buffer: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    def put(self, codec: Codec, compressed: memoryview, used_bytes: int) -> int | None:
        """Decompresses behind what is used; None if that does not fit. Behind nothing, the buffer grows."""
        while True:
            try:
                return decompress_into(codec, compressed, self.buffer[used_bytes:])
            except NoRoomError:
                if used_bytes:
                    return None
            self._grow(len(compressed))

    def _grow(self, compressed_bytes: int) -> None:
        if len(self.buffer) >= self.limits.batch_bytes_max:
            raise BadCompressionError(
                f"{compressed_bytes} bytes decompress to more than {self.limits.batch_bytes_max}; "
                f"if they are genuine, raise the limit"
            )
        wanted = max(2 * self.limits.arrow_batch_bytes, _SCRATCH_GROWTH * len(self.buffer))
        self.buffer = np.empty(min(wanted, self.limits.batch_bytes_max), np.uint8)


def decode(
    data: bytes | bytearray | memoryview,
    headers: BatchHeaders,
    selected: Bools | None = None,
    *,
    source: TopicPartition | None = None,
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> Iterator[pa.RecordBatch]:
    """Decodes the batches that `selected` marks (all of them if None), in order, as Arrow batches of `SCHEMA`."""
    chosen = headers.record_count > 0
    if selected is not None:
        chosen &= selected
    for group in _groups(memoryview(data), headers, np.flatnonzero(chosen).tolist(), source, limits):
        yield _decode_group(group, headers, source)


def _groups(
    data: memoryview, headers: BatchHeaders, chosen: list[int], source: TopicPartition | None, limits: DecodeLimits
) -> Iterator[_Group]:
    """Checks and decompresses. A group is valid only until the next is asked for: groups share the scratch buffer."""
    raw = read_only(np.frombuffer(data, np.uint8))
    scratch = _Scratch(limits)
    group = _Group(raw)
    for batch in chosen:
        start, end = int(headers.position[batch]), int(headers.end[batch])
        _check_crc(data[start:end], headers, batch, source)
        start += HEADER_BYTES
        codec = Codec(headers.codec[batch])
        full = group.records_bytes >= limits.arrow_batch_bytes
        if group.batches and (full or (group.data is raw) != (codec is Codec.none)):
            yield group
            group = _Group(raw)
        if codec is Codec.none:
            size = end - start
        else:
            try:
                unpacked = scratch.put(codec, data[start:end], group.records_bytes)
                if unpacked is None:
                    yield group
                    group = _Group(raw)
                    unpacked = scratch.put(codec, data[start:end], 0)
            except BadCompressionError as error:
                raise CorruptRecordsError(f"{_place(headers, batch, source)}: {error}") from error
            assert unpacked is not None  # noqa: S101  An empty scratch buffer grows or raises.
            start, size = group.records_bytes, unpacked
            group.data = scratch.buffer
        _check_count(headers, batch, size, source)
        group.add(batch, start, size)
    if group.batches:
        yield group


def _check_crc(batch_bytes: memoryview, headers: BatchHeaders, batch: int, source: TopicPartition | None) -> None:
    found = crc32c(batch_bytes[ATTRIBUTES_POSITION:])
    if found != headers.crc[batch]:
        raise CorruptRecordsError(
            f"{_place(headers, batch, source)}: the checksum is {found:08x}, but the batch says "
            f"{int(headers.crc[batch]):08x}; its bytes were damaged"
        )


def _check_count(headers: BatchHeaders, batch: int, size: int, source: TopicPartition | None) -> None:
    # Before anything is allocated for so many records.
    if headers.record_count[batch] * RECORD_BYTES_MIN > size:
        raise CorruptRecordsError(
            f"{_place(headers, batch, source)}: {headers.record_count[batch]} records cannot be in {size} bytes"
        )


def _place(headers: BatchHeaders, batch: int, source: TopicPartition | None) -> str:
    return place(source, int(headers.base_offset[batch]))


def _decode_group(group: _Group, headers: BatchHeaders, source: TopicPartition | None) -> pa.RecordBatch:
    chosen = np.array(group.batches)
    batches = np.column_stack(
        (
            np.array(group.spans, np.int64),
            headers.record_count[chosen],
            headers.base_offset[chosen],
            headers.last_offset_delta[chosen],
            headers.base_timestamp[chosen],
            headers.max_timestamp[chosen],
            headers.is_append_time[chosen],
        )
    )
    rows = int(headers.record_count[chosen].sum())
    keys, values = _binary_out(rows, group.records_bytes), _binary_out(rows, group.records_bytes)
    records = _records_out(rows)
    data = read_only(group.data.view())
    status, batch, record, header_bytes = kernels.decode_records(data, batches, keys, values, records)
    if status != kernels.OK:
        where = _place(headers, group.batches[batch], source)
        raise CorruptRecordsError(f"{where}: record {record} of the batch has {_REASONS[status]}")
    columns = [
        _binary(keys),
        _binary(values),
        pa.array(records.offsets),
        pa.array(records.timestamps).view(SCHEMA.field("timestamp").type),
        pa.array(records.timestamp_types),
        _headers(data, records, header_bytes, source),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _records_out(rows: int) -> RecordsOut:
    return RecordsOut(
        offsets=np.empty(rows, np.int64),
        timestamps=np.empty(rows, np.int64),
        timestamp_types=np.empty(rows, np.int32),
        header_counts=np.empty(rows, np.int32),
        header_positions=np.empty(rows, np.int64),
    )


def _binary_out(rows: int, data_bytes: int) -> BinaryOut:
    offsets: Ints = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    # Pages that are never written to take no memory, so the generous size costs address space only.
    return BinaryOut(offsets, np.empty(data_bytes, np.uint8), np.empty(rows, np.uint8))


def _binary(out: BinaryOut) -> pa.Array:
    data = pa.py_buffer(out.data[: out.offsets[-1]])
    return pa.Array.from_buffers(pa.binary(), len(out.valid), [_bitmap(out.valid), pa.py_buffer(out.offsets), data])


def _bitmap(valid: Bytes) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _headers(data: Bytes, records: RecordsOut, header_bytes: int, source: TopicPartition | None) -> pa.Array:
    count = int(records.header_counts.sum())
    if count == 0:
        return pa.nulls(len(records.header_counts), HEADERS_TYPE)
    keys, values = _binary_out(count, header_bytes), _binary_out(count, header_bytes)
    kernels.decode_headers(data, records, keys, values)
    try:
        names = _binary(keys).cast(pa.string())
    except pa.ArrowInvalid as error:
        first = int(records.offsets[0])
        raise CorruptRecordsError(f"{place(source, first)} or later: a header's key is not UTF-8") from error
    entries = pa.StructArray.from_arrays([names, _binary(values)], fields=list(HEADERS_TYPE.value_type))
    starts = np.zeros(len(records.header_counts) + 1, np.int32)
    np.cumsum(records.header_counts, out=starts[1:])
    bitmap = _bitmap((records.header_counts > 0).view(np.uint8))
    buffers = [bitmap, pa.py_buffer(starts)]
    return pa.Array.from_buffers(HEADERS_TYPE, len(records.header_counts), buffers, children=[entries])
