"""Ranges of offsets and how they are cut into the shares of Spark tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sparkonce.model import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one topic partition from `start` up to, and without, `end`."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many offsets it has; fewer records if some were compacted away or belong to transactions."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> tuple[OffsetRange, ...]:
    """One range a Spark task: none longer than `max_records`, and about `min_partitions` of them if there are fewer.

    The rules are those of Spark's built-in source: a range gets parts in proportion to its length, at least one.
    """
    shares = [piece for whole in ranges if whole.offsets > 0 for piece in _cut_to(whole, max_records)]
    total = sum(share.offsets for share in shares)
    if min_partitions is None or len(shares) >= min_partitions:
        return tuple(shares)
    return tuple(piece for share in shares for piece in _cut(share, round(share.offsets / total * min_partitions)))


def merged(ranges: Sequence[OffsetRange], max_partitions: int | None) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges of each Spark task: one, or if there are more than `max_partitions` of them, neighbours together, in
    groups that are about equally long. Neighbours, because the records of a topic partition keep their order only if
    later ones are in the same task or a later one.
    """
    if max_partitions is None or len(ranges) <= max_partitions:
        return tuple((whole,) for whole in ranges)
    total, before = sum(whole.offsets for whole in ranges), 0
    groups: list[list[OffsetRange]] = [[] for _ in range(max_partitions)]
    for whole in ranges:
        twice_the_middle = 2 * before + whole.offsets
        groups[twice_the_middle * max_partitions // (2 * total)].append(whole)
        before += whole.offsets
    return tuple(tuple(group) for group in groups if group)


def _cut_to(whole: OffsetRange, max_records: int | None) -> tuple[OffsetRange, ...]:
    return (whole,) if max_records is None else _cut(whole, -(-whole.offsets // max_records))


def _cut(whole: OffsetRange, parts: int) -> tuple[OffsetRange, ...]:
    """Cut into that many parts of nearly equal length, none of them empty."""
    parts = max(1, min(parts, whole.offsets))
    bounds = [whole.start + whole.offsets * part // parts for part in range(parts + 1)]
    return tuple(OffsetRange(whole.topic_partition, start, end) for start, end in pairwise(bounds))
