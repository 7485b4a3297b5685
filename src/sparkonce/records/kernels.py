"""The compiled loops over record bytes: everything that happens once per record.

All of it lives in one file because numba's disk cache notices a change only in the file of the function that it
caches. Signatures are explicit, so that nothing is ever compiled for a new type at run time: a process either loads
the cached machine code or, once per machine, compiles it.

The kernels never trust the bytes they read: each length is checked against what is left before it is used, and an
error comes back as a status, never as a read outside the buffer. They do not allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sparkonce.records.buffers import ALL_NULL, NO_NULLS, Binary, BinaryOut, Headers, RecordsOut
from sparkonce.records.layout import HEADER_BYTES, MAGIC, RECORD_BYTES_MIN

HEADER_FIELDS = 12
"""A batch's position in the buffer, then what `read_batch_headers` reads of its header."""

OK = 0
BAD_VARINT = 1
BAD_RECORD_LENGTH = 2
BAD_KEY_LENGTH = 3
BAD_VALUE_LENGTH = 4
BAD_HEADER = 5
BAD_OFFSET_DELTA = 6
RECORDS_LEFT_OVER = 7
BAD_BATCH_LENGTH = 8
BAD_MAGIC = 9


_U8_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I64_IN = types.Array(types.int64, 1, "C", readonly=True)
_I32_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8_OUT = types.uint8[::1]
_I32_OUT = types.int32[::1]
_I64_OUT = types.int64[::1]
_BINARY = types.NamedTuple([_I64_IN, _U8_IN, _U8_IN, types.int64], Binary)
_HEADERS = types.NamedUniTuple(_BINARY, 3, Headers)
_BINARY_OUT = types.NamedTuple([_I32_OUT, _U8_OUT, _U8_OUT], BinaryOut)
_RECORDS_OUT = types.NamedTuple([_I64_OUT, _I64_OUT, _I32_OUT, _I32_OUT, _I64_OUT], RecordsOut)


def _kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles for one signature, through the disk cache where there is one."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(signature, cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
        except RuntimeError as error:
            # No folder that can be written to, as in some containers: slower to start, no less right.
            if "cannot cache function" not in str(error):
                raise
            return njit(signature, nogil=True, error_model="numpy", _nrt=False)(function)

    return compiled


_part = njit(error_model="numpy", _nrt=False)
"""A piece of a kernel: compiled into each kernel that calls it."""


@intrinsic
def _byte(typing_context, data, position):
    """`data[position]` for a position known to be inside."""
    signature = types.uint8(data, types.int64)

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(array.data, [arguments[1]]))

    return signature, generate


@_part
def _is_null(column, row):
    if column.first_bit == NO_NULLS:
        return False
    if column.first_bit == ALL_NULL:
        return True
    bit = column.first_bit + row
    return (column.validity[bit >> 3] >> (bit & 7)) & 1 == 0


@_part
def _varint_bytes(value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    count = 1
    while rest >= 128:
        rest >>= np.uint64(7)
        count += 1
    return count


@_part
def _put_varint(out, position, value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= 128:
        out[position] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(rest)
    return position + 1


@_part
def _get_varint(data, position, end, bytes_max):
    """Gives (value, next position), or position -1 if the varint does not end in time."""
    result = np.uint64(0)
    shift = np.uint64(0)
    last = min(end, position + bytes_max)
    while position < last:
        byte = _byte(data, position)
        position += 1
        result |= np.uint64(byte & 0x7F) << shift
        if byte < 128:
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@intrinsic
def _copy(typing_context, target, target_at, source, source_at, count):
    """`target[target_at:][:count] = source[source_at:][:count]` as one memcpy; the caller has checked the bounds."""
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        target_array, target_index, source_array, source_index, length = arguments
        to = context.make_array(signature.args[0])(context, builder, target_array).data
        of = context.make_array(signature.args[2])(context, builder, source_array).data
        cgutils.raw_memcpy(builder, builder.gep(to, [target_index]), builder.gep(of, [source_index]), length, 1)
        return context.get_dummy_value()

    return signature, generate


@_part
def _field_bytes(column, row):
    if _is_null(column, row):
        return 1
    size = column.offsets[row + 1] - column.offsets[row]
    return _varint_bytes(size) + size


@_part
def _put_field(out, position, column, row):
    if _is_null(column, row):
        return _put_varint(out, position, -1)
    start = column.offsets[row]
    size = column.offsets[row + 1] - start
    position = _put_varint(out, position, size)
    _copy(out, position, column.data, start, size)
    return position + size


@_part
def _header_range(headers, row):
    if _is_null(headers.lists, row):
        return np.int64(0), np.int64(0)
    return headers.lists.offsets[row], headers.lists.offsets[row + 1]


@_kernel(
    types.Tuple([types.int64, types.int64, types.int64, types.int64])(
        _I64_IN, types.int64, _BINARY, _BINARY, _HEADERS, _I64_IN, _U8_OUT
    )
)
def encode_records(rows, first, keys, values, headers, timestamps, out):
    """Writes the records of `rows[first:]` until `out` is full.

    Gives (records written, bytes written, largest timestamp, bytes of the record that found no room, or 0).
    """
    position = np.int64(0)
    base_timestamp = timestamps[rows[first]] if first < len(rows) else np.int64(0)
    max_timestamp = base_timestamp
    for index in range(first, len(rows)):
        row = rows[index]
        delta = index - first
        timestamp_delta = timestamps[row] - base_timestamp
        header_first, header_end = _header_range(headers, row)
        size = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(delta) + _field_bytes(keys, row)
        size += _field_bytes(values, row) + _varint_bytes(header_end - header_first)
        for header in range(header_first, header_end):
            size += _field_bytes(headers.keys, header) + _field_bytes(headers.values, header)
        total = _varint_bytes(size) + size
        if position + total > len(out):
            return delta, position, max_timestamp, total
        position = _put_varint(out, position, size)
        out[position] = 0
        position = _put_varint(out, position + 1, timestamp_delta)
        position = _put_varint(out, position, delta)
        position = _put_field(out, position, keys, row)
        position = _put_field(out, position, values, row)
        position = _put_varint(out, position, header_end - header_first)
        for header in range(header_first, header_end):
            position = _put_field(out, position, headers.keys, header)
            position = _put_field(out, position, headers.values, header)
        max_timestamp = max(max_timestamp, timestamps[row])
    return len(rows) - first, position, max_timestamp, np.int64(0)


@_part
def _big_endian(data, position, count):
    value = np.int64(np.int8(data[position]))
    for i in range(position + 1, position + count):
        value = (value << 8) | np.int64(data[i])
    return value


@_kernel(types.Tuple([types.int64, types.int64, types.int64])(_U8_IN, types.int64[:, ::1]))
def read_batch_headers(data, out):
    """Walks the record batches in `data`, column by column into `out` (whose rows are the fields of the layout,
    after the batch's position). Without room in `out` it only counts.

    Gives (status, whole batches, bytes walked over). A batch that is cut off at the end is not counted.
    """
    position = np.int64(0)
    count = np.int64(0)
    while len(data) - position >= 17:
        length = _big_endian(data, position + 8, 4)
        if data[position + 16] != MAGIC:
            return BAD_MAGIC, count, position
        if length < HEADER_BYTES - 12:
            return BAD_BATCH_LENGTH, count, position
        if length > len(data) - position - 12:
            break
        if count < out.shape[1]:
            out[0, count] = position
            out[1, count] = _big_endian(data, position, 8)
            out[2, count] = length
            out[3, count] = _big_endian(data, position + 17, 4) & 0xFFFFFFFF
            out[4, count] = _big_endian(data, position + 21, 2)
            out[5, count] = _big_endian(data, position + 23, 4)
            out[6, count] = _big_endian(data, position + 27, 8)
            out[7, count] = _big_endian(data, position + 35, 8)
            out[8, count] = _big_endian(data, position + 43, 8)
            out[9, count] = _big_endian(data, position + 51, 2)
            out[10, count] = _big_endian(data, position + 53, 4)
            out[11, count] = _big_endian(data, position + 57, 4)
        count += 1
        position += 12 + length
    return OK, count, position


@_part
def _take_field(data, position, end, out, row, filled):
    """Copies a nullable field; gives (next position or -1, bytes in `out` now)."""
    size, position = _get_varint(data, position, end, 5)
    if position < 0 or size < -1 or size > end - position:
        return np.int64(-1), filled
    out.valid[row] = size >= 0
    if size > 0:
        _copy(out.data, filled, data, position, size)
        position += size
        filled += size
    out.offsets[row + 1] = filled
    return position, filled


@_part
def _skip_headers(data, position, end, count):
    """Checks `count` headers; gives (next position or -1, bytes of their keys and values)."""
    total = np.int64(0)
    for _ in range(count):
        size, position = _get_varint(data, position, end, 5)
        if position < 0 or size < 0 or size > end - position:
            return np.int64(-1), total
        position += size
        total += size
        size, position = _get_varint(data, position, end, 5)
        if position < 0 or size < -1 or size > end - position:
            return np.int64(-1), total
        if size > 0:
            position += size
            total += size
    return position, total


@_kernel(
    types.Tuple([types.int64, types.int64, types.int64, types.int64])(
        _U8_IN, types.Array(types.int64, 2, "C", readonly=True), _BINARY_OUT, _BINARY_OUT, _RECORDS_OUT
    )
)
def decode_records(data, batches, keys, values, out):
    """Parses the records of several batches, one row of `batches` each: start and end in `data`, record count,
    base offset, last offset delta, base timestamp, append time, 1 if the append time counts.

    Gives (status, batch of the error, record of the error in it, bytes of all headers).
    """
    row = 0
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    header_bytes = np.int64(0)
    for batch in range(batches.shape[0]):
        position = batches[batch, 0]
        batch_end = batches[batch, 1]
        previous_delta = np.int64(-1)
        for record in range(batches[batch, 2]):
            size, position = _get_varint(data, position, batch_end, 5)
            if position < 0:
                return BAD_VARINT, batch, record, header_bytes
            if size < RECORD_BYTES_MIN - 1 or size > batch_end - position:
                return BAD_RECORD_LENGTH, batch, record, header_bytes
            end = position + size
            timestamp_delta, position = _get_varint(data, position + 1, end, 10)
            if position < 0:
                return BAD_VARINT, batch, record, header_bytes
            offset_delta, position = _get_varint(data, position, end, 5)
            if position < 0 or offset_delta <= previous_delta or offset_delta > batches[batch, 4]:
                return BAD_OFFSET_DELTA, batch, record, header_bytes
            previous_delta = offset_delta
            position, key_bytes = _take_field(data, position, end, keys, row, key_bytes)
            if position < 0:
                return BAD_KEY_LENGTH, batch, record, header_bytes
            position, value_bytes = _take_field(data, position, end, values, row, value_bytes)
            if position < 0:
                return BAD_VALUE_LENGTH, batch, record, header_bytes
            count, position = _get_varint(data, position, end, 5)
            # A header has at least two bytes.
            if position < 0 or count < 0 or count > (end - position) >> 1:
                return BAD_HEADER, batch, record, header_bytes
            out.header_counts[row] = count
            out.header_positions[row] = position
            position, more = _skip_headers(data, position, end, count)
            if position != end:
                return BAD_HEADER, batch, record, header_bytes
            header_bytes += more
            out.offsets[row] = batches[batch, 3] + offset_delta
            append_time = batches[batch, 7]
            out.timestamps[row] = batches[batch, 6] if append_time else batches[batch, 5] + timestamp_delta
            out.timestamp_types[row] = append_time
            row += 1
        if position != batch_end:
            return RECORDS_LEFT_OVER, batch, batches[batch, 2], header_bytes
    return OK, np.int64(0), np.int64(0), header_bytes


@_kernel(types.void(_U8_IN, _RECORDS_OUT, _BINARY_OUT, _BINARY_OUT))
def decode_headers(data, records, keys, values):
    """Copies the headers of records that `decode_records` has checked."""
    header = 0
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for row in range(len(records.header_counts)):
        position = records.header_positions[row]
        for _ in range(records.header_counts[row]):
            position, key_bytes = _take_field(data, position, len(data), keys, header, key_bytes)
            position, value_bytes = _take_field(data, position, len(data), values, header, value_bytes)
            header += 1


@_part
def _murmur2(data, start, size):
    # Java's ints wrap at 32 bits; numba promotes to 64, hence the masks.
    mask = np.uint64(0xFFFFFFFF)
    mix = np.uint64(0x5BD1E995)
    shift = np.uint64(24)
    state = (np.uint64(0x9747B28C) ^ np.uint64(size)) & mask
    words = size >> 2
    for word in range(words):
        at = start + (word << 2)
        k = np.uint64(data[at]) | (np.uint64(data[at + 1]) << np.uint64(8))
        k |= (np.uint64(data[at + 2]) << np.uint64(16)) | (np.uint64(data[at + 3]) << shift)
        k = (k * mix) & mask
        k = ((k ^ (k >> shift)) * mix) & mask
        state = ((state * mix) & mask) ^ k
    at = start + (words << 2)
    rest = size & 3
    if rest:
        for i in range(rest):
            state ^= np.uint64(data[at + i]) << np.uint64(8 * i)
        state = (state * mix) & mask
    state = ((state ^ (state >> np.uint64(13))) * mix) & mask
    return np.int64(state ^ (state >> np.uint64(15)))


@_kernel(
    types.Tuple([types.int64, types.int64])(
        _BINARY, _BINARY, types.int64, types.int64, types.int64, types.int64, _I32_OUT
    )
)
def partition_by_key(keys, values, partitions, sticky, used_bytes, sticky_bytes, out):
    """Fills `out` with a partition for each row that has -1 there: by the key's hash, or for a null key the sticky
    partition, which moves on after `sticky_bytes` of values. Gives (sticky partition, bytes it has taken).
    """
    for row in range(len(out)):
        if out[row] >= 0:
            continue
        if not _is_null(keys, row):
            start = keys.offsets[row]
            out[row] = (_murmur2(keys.data, start, keys.offsets[row + 1] - start) & 0x7FFFFFFF) % partitions
            continue
        if used_bytes >= sticky_bytes:
            sticky = (sticky + 1) % partitions
            used_bytes = np.int64(0)
        out[row] = sticky
        used_bytes += _field_bytes(values, row)
    return sticky, used_bytes


@_kernel(types.void(_I32_IN, _I64_OUT, _I64_OUT))
def group_rows(partition_of_row, starts, order):
    """A stable counting sort: `order[starts[p]:starts[p + 1]]` are the rows of partition p, in their order.

    `starts` has two entries more than there are partitions; the last is scratch.
    """
    starts[:] = 0
    for row in range(len(partition_of_row)):
        starts[partition_of_row[row] + 2] += 1
    for partition in range(2, len(starts)):
        starts[partition] += starts[partition - 1]
    for row in range(len(partition_of_row)):
        partition = partition_of_row[row]
        order[starts[partition + 1]] = row
        starts[partition + 1] += 1
