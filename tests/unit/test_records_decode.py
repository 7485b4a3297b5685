"""Decoding: what other builders wrote, and what nobody should have written."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from sparkonce.errors import CorruptRecordsError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.records import SCHEMA, Codec, DecodeLimits, decode, encode, read_headers
from sparkonce.records.layout import ATTRIBUTES, ATTRIBUTES_POSITION, CRC, CRC_POSITION, HEADER_BYTES
from tests.unit.record_samples import Record, columns_of, decoded, records

SOURCE = TopicPartition("orders", 3)
ROWS = [
    Record(b"a", b"one", 100, [("h", b"x"), ("h", None)]),
    Record(None, None, 90),
    Record(b"", b"", 2**40, [("", b"")]),
]


def batch_of(rows: list[Record], codec: Codec = Codec.none, base_offset: int = 0) -> bytearray:
    (batch,) = encode(columns_of(rows), codec=codec)
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, base_offset)
    return data


def with_crc(data: bytearray) -> bytearray:
    CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))
    return data


def with_attributes(data: bytearray, bits: int) -> bytearray:
    (attributes,) = ATTRIBUTES.unpack_from(data, ATTRIBUTES_POSITION)
    ATTRIBUTES.pack_into(data, ATTRIBUTES_POSITION, attributes | bits)
    return with_crc(data)


def decode_all(data: bytes | bytearray, **options: Any) -> pa.Table:
    headers = read_headers(data, SOURCE)
    return pa.Table.from_batches(decode(data, headers, source=SOURCE, **options), SCHEMA)


@given(st.lists(records(), min_size=1, max_size=20))
def test_what_kafka_python_builds_is_decoded(rows: list[Record]) -> None:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10**7,
    )
    for offset, row in enumerate(rows):
        builder.append(offset, row.timestamp, row.key, row.value, row.headers)
    assert decoded(bytes(builder.build())) == rows


@given(
    st.lists(st.tuples(st.lists(records(), min_size=1, max_size=5), st.sampled_from(list(Codec))), max_size=6),
    st.integers(1, 2_000),
)
def test_batches_of_all_codecs_in_one_buffer(batches: list[tuple[list[Record], Codec]], arrow_batch_bytes: int) -> None:
    data = b"".join(batch_of(rows, codec, base_offset=100 * i) for i, (rows, codec) in enumerate(batches))
    table = decode_all(data, limits=DecodeLimits(arrow_batch_bytes=arrow_batch_bytes))
    offsets = [100 * i + row for i, (rows, _) in enumerate(batches) for row in range(len(rows))]
    assert table["offset"].to_pylist() == offsets
    assert table["value"].to_pylist() == [row.value for rows, _ in batches for row in rows]
    table.validate(full=True)


def test_every_column() -> None:
    table = decode_all(batch_of(ROWS, base_offset=7))
    assert table["key"].to_pylist() == [b"a", None, b""]
    assert table["value"].to_pylist() == [b"one", None, b""]
    assert table["offset"].to_pylist() == [7, 8, 9]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [100, 90, 2**40]
    assert table["timestamp_type"].to_pylist() == [0, 0, 0]
    header = {"key": "h", "value": b"x"}
    assert table["headers"].to_pylist() == [
        [header, {"key": "h", "value": None}],
        None,
        [{"key": "", "value": b""}],
    ]


def test_append_time_counts_for_all_records() -> None:
    data = batch_of(ROWS)
    struct.pack_into(">q", data, 35, 555)
    table = decode_all(with_attributes(data, 0x08))
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [555, 555, 555]
    assert table["timestamp_type"].to_pylist() == [1, 1, 1]


def test_the_caller_skips_control_and_aborted_batches() -> None:
    control = with_attributes(batch_of(ROWS[:1], base_offset=10), 0x30)
    data = bytes(batch_of(ROWS[:2])) + control + batch_of(ROWS[2:], base_offset=20)
    headers = read_headers(data, SOURCE)
    assert headers.is_control.tolist() == [False, True, False]
    assert headers.is_transactional.tolist() == [False, True, False]
    assert headers.last_offset.tolist() == [1, 10, 20]
    (kept,) = decode(data, headers, ~headers.is_control)
    assert kept["offset"].to_pylist() == [0, 1, 20]


def test_offsets_with_gaps_and_empty_batches_as_compaction_leaves_them() -> None:
    gap = batch_of([ROWS[0]], base_offset=5)
    struct.pack_into(">i", gap, 23, 9)  # The batch once had ten records, of which the first is left.
    empty = batch_of([ROWS[0]], base_offset=15)[:HEADER_BYTES]
    struct.pack_into(">i", empty, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", empty, 23, 4)
    struct.pack_into(">i", empty, 57, 0)
    data = with_crc(gap) + with_crc(empty)
    headers = read_headers(data)
    assert headers.last_offset.tolist() == [14, 19]
    assert decode_all(data)["offset"].to_pylist() == [5]


def test_a_partial_batch_at_the_end_is_normal() -> None:
    whole = bytes(batch_of(ROWS))
    following = batch_of(ROWS, base_offset=3)
    for cut in range(len(following)):
        data = whole + following[:cut]
        headers = read_headers(data, SOURCE)
        assert (len(headers), headers.walked_bytes) == (1, len(whole))
    assert len(read_headers(b"")) == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    data = batch_of(ROWS, base_offset=12)
    data[16] = magic
    with pytest.raises(UsageError, match=rf"orders-3 at offset 12 has the old message format {magic}"):
        read_headers(data, SOURCE)


def patched(position: int, layout: str, value: int, codec: Codec = Codec.none) -> bytearray:
    data = batch_of(ROWS, codec, base_offset=12)
    struct.pack_into(layout, data, position, value)
    return with_crc(data)


LYING_HEADERS: dict[str, tuple[bytearray, str]] = {
    "magic": (patched(16, ">b", 9), "unknown message format 9"),
    "length": (patched(8, ">i", 48), "batch length of 48 bytes; the least is 49"),
    "negative length": (patched(8, ">i", -1), "batch length of -1 bytes"),
    "offset": (patched(0, ">q", -5), "at offset -5: batch with a negative"),
    "huge offset": (patched(0, ">q", 2**63 - 1), "too large base offset"),
    "last offset": (patched(23, ">i", -1), "a negative last offset delta"),
    "count": (patched(57, ">i", -1), "a negative record count"),
    "more records than offsets": (patched(57, ">i", 4), "more records than offsets"),
    "codec": (patched(21, ">h", 5), "an unknown compression codec"),
}


@pytest.mark.parametrize("name", LYING_HEADERS)
def test_a_lying_header_is_refused(name: str) -> None:
    data, message = LYING_HEADERS[name]
    with pytest.raises(CorruptRecordsError, match=message):
        read_headers(data, SOURCE)


def test_a_damaged_byte_is_noticed_wherever_it_is() -> None:
    data = batch_of(ROWS, base_offset=12)
    for position in range(CRC_POSITION, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRecordsError, match="orders-3 at offset 12"):
            decode_all(damaged)


def test_a_count_that_cannot_be_is_refused_before_memory_is_taken() -> None:
    data = batch_of(ROWS, base_offset=12)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    tracemalloc.start()
    with pytest.raises(CorruptRecordsError, match="2147483647 records cannot be in"):
        decode_all(with_crc(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


# The one record of this batch: length 8, attributes, timestamp delta, offset delta, key length 1, key, value length 1,
# value, header count.
ONE_RECORD = bytes([16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0])
BROKEN_RECORDS: dict[str, tuple[Callable[[bytearray], object], str]] = {
    "length too long": (lambda r: r.__setitem__(0, 18), "record length"),
    "length too short": (lambda r: r.__setitem__(0, 2), "record length"),
    "length negative": (lambda r: r.__setitem__(0, 1), "record length"),
    "varint without end": (lambda r: r.__setitem__(slice(0, 9), b"\xff" * 9), "varint"),
    "timestamp without end": (lambda r: r.__setitem__(slice(2, 9), b"\xff" * 7), "varint"),
    "offset outside": (lambda r: r.__setitem__(3, 2), "offset out of order"),
    "offset negative": (lambda r: r.__setitem__(3, 1), "offset out of order"),
    "key too long": (lambda r: r.__setitem__(4, 10), "key length"),
    "key length -2": (lambda r: r.__setitem__(4, 3), "key length"),
    "value too long": (lambda r: r.__setitem__(6, 6), "value length"),
    "header count": (lambda r: r.__setitem__(8, 2), "headers"),
    "header count negative": (lambda r: r.__setitem__(8, 1), "headers"),
    "record shorter than it says": (lambda r: r.__setitem__(slice(6, 9), [1, 0, 0]), "headers"),
    "bytes behind": (lambda r: r.append(0), "left over"),
}


def batch_with_records(body: bytes | bytearray, count: int, codec: Codec = Codec.none) -> bytearray:
    data = batch_of(ROWS[:1], codec, base_offset=12)[:HEADER_BYTES] + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return with_crc(data)


def test_the_handmade_record_is_right_before_it_is_broken() -> None:
    assert decoded(batch_with_records(ONE_RECORD, 1)) == [Record(b"k", b"v", 100)]


@pytest.mark.parametrize("name", BROKEN_RECORDS)
def test_a_broken_record_is_refused(name: str) -> None:
    breaks, message = BROKEN_RECORDS[name]
    body = bytearray(ONE_RECORD)
    breaks(body)
    with pytest.raises(CorruptRecordsError, match=f"orders-3 at offset 12: record . of the batch has .*{message}"):
        decode_all(batch_with_records(body, 1))


def test_a_header_key_that_is_no_text_is_refused() -> None:
    body = bytes([20, 0, 0, 0, 1, 1, 2, 4, 0xFF, 0xFE, 0])
    with pytest.raises(CorruptRecordsError, match="orders-3 at offset 12 or later: a header's key is not UTF-8"):
        decode_all(batch_with_records(body, 1))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.none])
def test_what_is_not_compressed_as_it_says_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecordsError, match=f"orders-3 at offset 12: not a valid {codec.name}"):
        decode_all(batch_with_records(random.Random(5).randbytes(200), 20, codec))


BOMBS: dict[Codec, bytes] = {
    Codec.gzip: bytes(cramjam.gzip.compress(bytes(50_000_000))),
    Codec.zstd: bytes(cramjam.zstd.compress(bytes(50_000_000))),
    Codec.lz4: bytes(cramjam.lz4.compress(bytes(50_000_000))),
    Codec.snappy: bytes(cramjam.snappy.compress_raw(bytes(50_000_000))),
}


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
def test_a_decompression_bomb_is_stopped_at_the_limit(codec: Codec) -> None:
    data = batch_with_records(BOMBS[codec], 3, codec)
    limits = DecodeLimits(batch_bytes_max=1_000_000, arrow_batch_bytes=10_000)
    tracemalloc.start()
    with pytest.raises(CorruptRecordsError, match="decompress to more than 1000000"):
        decode_all(data, limits=limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_snappy_without_java_framing_is_read() -> None:
    body = bytes(cramjam.snappy.compress_raw(ONE_RECORD))
    assert decoded(batch_with_records(body, 1, Codec.snappy)) == [Record(b"k", b"v", 100)]


def test_ten_megabyte_records() -> None:
    rows = [Record(b"k", random.Random(size).randbytes(size), 0) for size in (10_000_000, 10)]
    batches = encode(columns_of(rows), codec=Codec.lz4, batch_bytes_max=12_000_000)
    assert decoded(b"".join(batch.data for batch in batches)) == rows


def test_a_selection_of_nothing_gives_nothing() -> None:
    data = batch_of(ROWS)
    headers = read_headers(data)
    assert list(decode(data, headers, np.zeros(len(headers), bool))) == []
