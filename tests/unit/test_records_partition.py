"""Partitioning: the Java client's hash, explicit partitions, the sticky partition, custom functions."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.errors import UsageError
from sparkonce.records import (
    StickyPartition,
    custom_partitions,
    partition_rows,
    record_columns,
    rows_of_partitions,
)

GOLDEN = Path(__file__).parents[1] / "data" / "murmur2.tsv.gz"


def test_keys_go_where_the_java_client_sends_them() -> None:
    """The golden file was made with the Java client's own class, see `tools/Murmur2Golden.java`."""
    lines = [line.split("\t") for line in gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()]
    assert len(lines) >= 10_000
    keys = pa.array([bytes.fromhex(key) for key, _ in lines])
    positive = np.array([int(hashed) & 0x7FFFFFFF for _, hashed in lines])
    columns = record_columns(keys, key=keys, default_timestamp_ms=0)
    for partitions in (1, 7, 100, 2**31 - 1):
        found, _ = partition_rows(columns, partitions)
        assert (found == positive % partitions).all()


def partitions_of(keys: list[bytes | None], count: int, **options: object) -> list[int]:
    column = pa.array(keys, pa.binary())
    values = pa.array([b"v" * 99] * len(keys))
    found, _ = partition_rows(record_columns(values, key=column, default_timestamp_ms=0), count, **options)  # type: ignore[arg-type]
    return [int(partition) for partition in found]


def test_records_without_a_key_stick_to_a_partition_until_it_has_its_share() -> None:
    assert partitions_of([None] * 7, 3, sticky_bytes=200, sticky=StickyPartition(1)) == [1, 1, 2, 2, 0, 0, 1]


def test_the_sticky_partition_goes_on_in_the_next_arrow_batch() -> None:
    values = pa.array([b"v" * 99] * 3)
    columns = record_columns(values, default_timestamp_ms=0)
    first, sticky = partition_rows(columns, 3, sticky_bytes=200)
    second, _ = partition_rows(columns, 3, sticky_bytes=200, sticky=sticky)
    assert [*first.tolist(), *second.tolist()] == [0, 0, 1, 1, 2, 2]


def test_an_explicit_partition_wins_and_null_falls_back_to_the_key() -> None:
    (by_key,) = partitions_of([b"k"], 50)
    assert partitions_of([b"k", b"k", None], 50, explicit=pa.array([3, None, None]), sticky=StickyPartition(9)) == [
        3,
        by_key,
        9,
    ]


@pytest.mark.parametrize(("column", "wrong"), [([0, 4], 4), ([-1, 2], -1)])
def test_a_partition_that_does_not_exist_is_named(column: list[int], wrong: int) -> None:
    with pytest.raises(UsageError, match=f"partition {wrong} does not exist: the topic has partitions 0 to 3"):
        partitions_of([None, None], 4, explicit=pa.array(column, pa.int64()))


def test_explicit_partitions_must_be_integers_and_as_many_as_rows() -> None:
    with pytest.raises(UsageError, match="must be integers, but the column is string"):
        partitions_of([None], 4, explicit=pa.array(["1"]))
    with pytest.raises(UsageError, match="there are 1 partitions for 2 rows"):
        partitions_of([None, None], 4, explicit=pa.array([1]))
    with pytest.raises(UsageError, match="0 partitions cannot be written"):
        partitions_of([None], 0)


@given(st.lists(st.integers(0, 9), max_size=200))
def test_rows_are_grouped_in_their_order(partitions: list[int]) -> None:
    found = dict(rows_of_partitions(np.array(partitions, np.int32), 10))
    expected: dict[int, list[int]] = {}
    for row, partition in enumerate(partitions):
        expected.setdefault(partition, []).append(row)
    assert {partition: rows.tolist() for partition, rows in found.items()} == expected


def test_a_custom_partitioner_is_checked() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    assert custom_partitions(lambda _, count: pa.array([count - 1, None]), rows, 4).to_pylist() == [3, None]
    assert custom_partitions(lambda *_: np.array([0, 1]), rows, 4).to_pylist() == [0, 1]
    with pytest.raises(UsageError, match="gave 1 partitions for 2 rows"):
        custom_partitions(lambda *_: pa.array([0]), rows, 4)
    with pytest.raises(UsageError, match="must give an Arrow column, but it gave int"):
        custom_partitions(lambda *_: 3, rows, 4)
