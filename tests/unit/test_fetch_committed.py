"""Which record batches a reader may see, for every order of transactions and markers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkonce.fetch.committed import overlapping_batches, visible_batches
from sparkonce.fetch.reading import rows_within
from sparkonce.records import BatchHeaders
from sparkonce.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from sparkonce.wire import AbortedTransaction

PLAIN, DATA, MARKER = 0, TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | CONTROL_BIT


def headers_of(*batches: tuple[int, int, int]) -> BatchHeaders:
    """Batches of (attributes, producer id, number of offsets), one behind the other."""
    count = len(batches)
    sizes = np.array([size for _, _, size in batches], np.int64)
    zeros = np.zeros(count, np.int64)
    return BatchHeaders(
        walked_bytes=0,
        position=zeros,
        base_offset=np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64),
        length=zeros,
        crc=zeros,
        attributes=np.array([attributes for attributes, _, _ in batches], np.int64),
        last_offset_delta=sizes - 1,
        base_timestamp=zeros,
        max_timestamp=zeros,
        producer_id=np.array([producer for _, producer, _ in batches], np.int64),
        producer_epoch=zeros,
        base_sequence=zeros,
        record_count=sizes,
    )


def visible(headers: BatchHeaders, *aborted: tuple[int, int]) -> list[bool]:
    flags: list[bool] = visible_batches(headers, [AbortedTransaction(*each) for each in aborted]).tolist()
    return flags


def test_without_aborted_transactions_only_markers_are_hidden() -> None:
    headers = headers_of((PLAIN, -1, 3), (DATA, 7, 2), (MARKER, 7, 1), (PLAIN, -1, 1))
    assert visible(headers) == [True, True, False, True]


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    headers = headers_of((DATA, 7, 2), (MARKER, 7, 1), (DATA, 7, 2), (MARKER, 7, 1), (DATA, 7, 2), (MARKER, 7, 1))
    assert visible(headers, (7, 3)) == [True, False, False, False, True, False]
    assert visible(headers, (7, 0), (7, 6)) == [False, False, True, False, False, False]


def test_transactions_inside_each_other() -> None:
    headers = headers_of((DATA, 7, 2), (DATA, 8, 2), (PLAIN, 9, 1), (MARKER, 8, 1), (DATA, 7, 1), (MARKER, 7, 1))
    assert visible(headers, (7, 0)) == [False, True, True, False, False, False]
    assert visible(headers, (8, 2)) == [True, False, True, False, True, False]


def test_a_transaction_that_began_before_the_answer() -> None:
    headers = headers_of((DATA, 7, 2), (PLAIN, 7, 1), (MARKER, 7, 1))
    assert visible(headers, (7, -50)) == [False, True, False]


def test_a_transaction_that_begins_later() -> None:
    headers = headers_of((DATA, 7, 5), (MARKER, 7, 1), (DATA, 7, 1))
    assert visible(headers, (7, 6)) == [True, False, False]
    assert visible(headers, (7, 100)) == [True, False, True]


def test_overlapping_batches() -> None:
    headers = headers_of((PLAIN, -1, 10), (PLAIN, -1, 10), (PLAIN, -1, 10))
    assert overlapping_batches(headers, 10, 20).tolist() == [False, True, False]
    assert overlapping_batches(headers, 9, 21).tolist() == [True, True, True]


def test_rows_within_a_range() -> None:
    arrow_batch = pa.record_batch({"offset": pa.array([3, 4, 8, 9], pa.int64())})
    assert rows_within(arrow_batch, 4, 9)["offset"].to_pylist() == [4, 8]
    assert rows_within(arrow_batch, 5, 8)["offset"].to_pylist() == []
    assert rows_within(arrow_batch, 0, 99)["offset"].to_pylist() == [3, 4, 8, 9]
