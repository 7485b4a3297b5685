"""Cutting ranges, limiting micro-batches, naming what is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.errors import UsageError
from sparkonce.fetch import OffsetRange
from sparkonce.fetch.bounded import ranges_from_to
from sparkonce.fetch.limits import available_bytes, available_offsets, limit_offsets, portion
from sparkonce.fetch.lost import data_loss, lost_before, without_lost
from sparkonce.fetch.ranges import merged, split
from sparkonce.fetch.stream import still_there
from sparkonce.model import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)), min_size=1, max_size=8)


def ranges_of(pairs: list[tuple[int, int]]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(pairs)]


@given(RANGES, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 300)))
def test_split_covers_everything_once(
    pairs: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(pairs)
    pieces = split(ranges, min_partitions=min_partitions, max_records=max_records)
    covered = [(piece.topic_partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(whole.topic_partition, offset) for whole in ranges for offset in range(whole.start, whole.end)]
    assert all(piece.offsets > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.offsets <= max_records for piece in pieces)


def test_split_gives_long_ranges_more_parts() -> None:
    pieces = split([OffsetRange(A, 0, 900), OffsetRange(B, 0, 100)], min_partitions=10)
    assert [piece.topic_partition for piece in pieces].count(A) == 9
    assert [piece.topic_partition for piece in pieces].count(B) == 1
    assert {piece.offsets for piece in pieces} == {100}


def test_split_leaves_alone_what_is_enough() -> None:
    ranges = (OffsetRange(A, 0, 900), OffsetRange(B, 5, 6))
    assert split([*ranges, OffsetRange(C, 7, 7)], min_partitions=2) == ranges


@given(RANGES, st.integers(1, 40), st.integers(1, 10))
def test_merging_keeps_everything_in_order(pairs: list[tuple[int, int]], min_partitions: int, most: int) -> None:
    pieces = split(ranges_of(pairs), min_partitions=min_partitions)
    groups = merged(pieces, most)
    assert tuple(piece for group in groups for piece in group) == pieces
    assert all(groups)
    assert len(groups) <= most
    if len(pieces) <= most:
        assert groups == tuple((piece,) for piece in pieces)


def test_merged_groups_are_about_equally_long() -> None:
    even = [OffsetRange(TopicPartition("t", index), 0, 100) for index in range(12)]
    assert [len(group) for group in merged(even, 4)] == [3, 3, 3, 3]
    assert [len(group) for group in merged(even, 5)] == [2, 3, 2, 3, 2]
    one_large = [OffsetRange(A, 0, 900), OffsetRange(B, 0, 50), OffsetRange(C, 0, 50)]
    assert [len(group) for group in merged(one_large, 2)] == [1, 2]


def test_nothing_is_merged_unless_it_is_asked_for() -> None:
    ranges = (OffsetRange(A, 0, 900), OffsetRange(B, 0, 50))
    assert merged(ranges, None) == ((ranges[0],), (ranges[1],))
    assert merged((), 3) == ()


@given(RANGES, st.integers(1, 3_000))
def test_limits_stay_within_what_there_is(pairs: list[tuple[int, int]], max_offsets: int) -> None:
    ranges = ranges_of(pairs)
    begin = {piece.topic_partition: piece.start for piece in ranges}
    latest = {piece.topic_partition: piece.end for piece in ranges}
    end = limit_offsets(begin, latest, portion(available_offsets(begin, latest), max_offsets))
    assert all(begin[tp] <= end[tp] <= latest[tp] for tp in begin)
    assert available_offsets(begin, end) <= max_offsets + len(begin)
    # Whoever has records gives some, so that no small topic partition waits for a large one.
    assert all(end[tp] > begin[tp] for tp in begin if latest[tp] > begin[tp])


def test_limits_are_shared_in_proportion() -> None:
    tenth = portion(1_000, 100)
    assert limit_offsets({A: 0, B: 100, C: 5}, {A: 800, B: 300, C: 5}, tenth) == {A: 80, B: 120, C: 5}
    assert limit_offsets({A: 0, B: 0}, {A: 3, B: 4}, portion(7, 7)) == {A: 3, B: 4}
    assert limit_offsets({A: 0}, {A: 3}, portion(7, None)) == {A: 3}


def test_bytes_are_counted_where_they_are_known() -> None:
    rates = {A: 2.5, B: 10.0}
    assert available_bytes({A: 0, B: 5, C: 0}, {A: 10, B: 4, C: 7}, rates) == 25
    # A limit smaller than a single record still lets every topic partition give one.
    assert limit_offsets(
        {A: 0, B: 0}, {A: 10, B: 9}, portion(available_bytes({A: 0, B: 0}, {A: 10, B: 9}, rates), 1)
    ) == {
        A: 1,
        B: 1,
    }


def test_lost_ranges() -> None:
    wanted = (OffsetRange(A, 0, 10), OffsetRange(B, 5, 10), OffsetRange(C, 0, 10))
    earliest = {A: 4, B: 5, C: 20}
    lost = lost_before(wanted, earliest)
    assert lost == (OffsetRange(A, 0, 4), OffsetRange(C, 0, 10))
    assert without_lost(wanted, earliest) == (OffsetRange(A, 4, 10), OffsetRange(B, 5, 10))
    assert "t-0 [0, 4), t-2 [0, 10) (14 offsets)" in str(data_loss(lost, "why"))
    assert still_there(wanted, earliest, fail_on_data_loss=False) == without_lost(wanted, earliest)
    with pytest.raises(UsageError, match=r"t-0 \[0, 4\), t-2 \[0, 10\)"):
        still_there(wanted, earliest, fail_on_data_loss=True)
    assert still_there(wanted, {A: 0, B: 0, C: 0}, fail_on_data_loss=True) == wanted


def test_many_lost_ranges_are_counted() -> None:
    lost = [OffsetRange(TopicPartition("t", index), 0, 1) for index in range(100)]
    assert "and 80 more ranges (100 offsets)" in str(data_loss(lost, "why"))


def test_a_start_behind_the_end() -> None:
    assert ranges_from_to({A: 1, B: 2}, {A: 4, B: 2}) == (OffsetRange(A, 1, 4), OffsetRange(B, 2, 2))
    with pytest.raises(UsageError, match="t-1: the start, offset 3, lies behind the end, offset 2"):
        ranges_from_to({A: 1, B: 3}, {A: 4, B: 2})
