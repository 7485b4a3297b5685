"""Encoding: byte for byte what kafka-python's builder writes, cut where the limit says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from sparkonce.errors import UsageError
from sparkonce.model import ProducerIdentity
from sparkonce.records import Codec, encode, record_columns, record_count, seal
from tests.unit.record_samples import HEADERS_TYPE, Record, columns_of, decoded, records

IDENTITIES = st.builds(ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))


def built_by_kafka_python(
    rows: Sequence[Record], producer: ProducerIdentity, base_sequence: int, *, transactional: bool
) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=base_sequence,
        batch_size=10_000_000,
    )
    for offset, row in enumerate(rows):
        builder.append(offset, row.timestamp, row.key, row.value, row.headers)
    return bytes(builder.build())


@given(
    st.lists(records(), min_size=1, max_size=40),
    IDENTITIES,
    st.integers(0, 2**31 - 1),
    st.booleans(),
    st.integers(0, 5),
)
def test_the_bytes_are_those_of_kafka_python(
    rows: list[Record], producer: ProducerIdentity, base_sequence: int, transactional: bool, skipped: int
) -> None:
    columns = columns_of(rows, before=skipped)
    (batch,) = encode(columns, codec=Codec.none)
    sealed = seal(batch.data, producer, base_sequence, transactional=transactional)
    assert bytes(sealed) == built_by_kafka_python(rows, producer, base_sequence, transactional=transactional)


@given(st.lists(records(), min_size=1, max_size=30), st.sampled_from(list(Codec)), st.data())
def test_chosen_rows_come_back_in_the_chosen_order(rows: list[Record], codec: Codec, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=40))
    batches = list(encode(columns_of(rows), np.array(chosen, np.int64), codec=codec, batch_bytes_max=4_000))
    assert sum(batch.record_count for batch in batches) == len(chosen)
    assert decoded(b"".join(seal(batch.data) for batch in batches)) == [rows[row] for row in chosen]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", ["text", "random"])
def test_no_batch_exceeds_the_limit(codec: Codec, kind: str) -> None:
    source = random.Random(7)
    rows = [Record(None, source.randbytes(300) if kind == "random" else b"order " * 50, 5) for _ in range(500)]
    batches = list(encode(columns_of(rows), codec=codec, batch_bytes_max=5_000))
    assert max(len(batch.data) for batch in batches) <= 5_000
    assert [record_count(batch.data) for batch in batches] == [batch.record_count for batch in batches]
    assert decoded(b"".join(batch.data for batch in batches)) == rows


def test_incompressible_records_are_cut_again_after_compression() -> None:
    # Snappy makes random bytes longer: cut exactly at the limit before compression, they are over it afterwards.
    rows = [Record(None, random.Random(row).randbytes(92), 0, []) for row in range(100)]
    (whole,) = encode(columns_of(rows), codec=Codec.none)
    batches = list(encode(columns_of(rows), codec=Codec.snappy, batch_bytes_max=len(whole.data)))
    assert len(batches) == 2
    assert decoded(b"".join(batch.data for batch in batches)) == rows


def test_a_large_record_may_be_saved_by_compression() -> None:
    rows = [Record(b"k", b"a" * 100_000, 0, []), Record(b"k", b"b" * 10, 0, [])]
    batches = list(encode(columns_of(rows), codec=Codec.zstd, batch_bytes_max=2_000))
    assert [batch.record_count for batch in batches] == [1, 1]
    assert decoded(b"".join(batch.data for batch in batches)) == rows


def test_a_record_over_the_limit_is_named_with_both_sizes() -> None:
    rows = [Record(None, b"small", 0, []), Record(None, random.Random(1).randbytes(9_000), 0, [])]
    with pytest.raises(
        UsageError, match=r"record of 90\d\d bytes makes a batch of 9\d\d\d bytes .*limit of 2000.*max.message.bytes"
    ):
        list(encode(columns_of(rows), codec=Codec.lz4, batch_bytes_max=2_000))


def test_nothing_to_encode_gives_nothing() -> None:
    assert list(encode(columns_of([]))) == []
    assert list(encode(columns_of([Record(None, b"v", 0, [])]), np.array([], np.int64))) == []


def test_rows_that_do_not_exist_are_refused() -> None:
    columns = columns_of([Record(None, b"v", 0, [])])
    for row in (-1, 1):
        with pytest.raises(UsageError, match="chosen from 1"):
            list(encode(columns, np.array([row], np.int64)))


BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()]


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
def test_every_binary_and_string_type_is_taken(kind: pa.DataType) -> None:
    texts = ["", "a", None, "grün", "x" * 50]
    column = pa.array(["before", *texts], kind).slice(1)
    columns = record_columns(column, key=column, default_timestamp_ms=1)
    (batch,) = encode(columns)
    expected = [text.encode() if text is not None else None for text in texts]
    found = decoded(batch.data)
    assert [row.value for row in found] == expected
    assert [row.key for row in found] == expected


def test_chunked_columns_are_taken() -> None:
    column = pa.chunked_array([[b"a"], [b"b", None]], pa.binary())
    (batch,) = encode(record_columns(column, key=column, default_timestamp_ms=1))
    assert [row.value for row in decoded(batch.data)] == [b"a", b"b", None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_become_milliseconds(unit: str) -> None:
    seconds = pa.array([0, 1_700_000_000, None, -5], pa.timestamp("s")).cast(pa.timestamp(unit, "UTC"))
    values = pa.array([b"v"] * 4)
    (batch,) = encode(record_columns(values, timestamp=seconds, default_timestamp_ms=77))
    assert [row.timestamp for row in decoded(batch.data)] == [0, 1_700_000_000_000, 77, -5_000]


def test_headers_of_null_rows_are_not_looked_at() -> None:
    # A null row may still span entries of the values, here one with a null key.
    entries = pa.array([{"key": None, "value": b"x"}, {"key": "h", "value": None}], HEADERS_TYPE.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), entries, type=HEADERS_TYPE, mask=pa.array([True, False]))
    (batch,) = encode(record_columns(pa.array([b"a", b"b"]), headers=lists, default_timestamp_ms=0))
    assert [row.headers for row in decoded(batch.data)] == [[], [("h", None)]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": pa.array([1])}, "column 'value' must be binary or string, but it is int64"),
        (
            {"value": pa.array([b"v"]), "key": pa.array([1.5])},
            "column 'key' must be binary or string, but it is double",
        ),
        ({"value": pa.array([b"v"]), "key": pa.array([b"a", b"b"])}, "column 'key' has 2 rows, column 'value' has 1"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array(["now"])}, "column 'timestamp' must be a timestamp"),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([["h"]])},
            "column 'headers' must be list<struct<key, value>>",
        ),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)},
            "a header has a null key",
        ),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, pa.Array], message: str) -> None:
    value = columns.pop("value")
    with pytest.raises(UsageError, match=message):
        record_columns(value, default_timestamp_ms=0, **columns)


def test_only_encoded_batches_can_be_sealed() -> None:
    with pytest.raises(UsageError, match="5 bytes are not an encoded record batch"):
        seal(b"hello")
