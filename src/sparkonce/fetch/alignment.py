"""Holds back topic partitions whose records are further ahead in time than others', so that no watermark overtakes
the slow ones. Pure.

Spark's watermark follows the newest event of all topic partitions. On a backfill, one that is a day ahead would make
the others' records late, and Spark would drop them. With a bound on the drift, a micro-batch ends in each topic
partition before the first record that is that much newer than the oldest one that is still to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkonce.fetch.offset_maps import Offsets
from sparkonce.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The next records of a topic partition: their offsets and times, a handful of them."""

    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]


def horizon_ms(upcoming: Mapping[TopicPartition, Upcoming], held: Mapping[TopicPartition, int], drift_ms: int) -> int:
    """The time that no record of the micro-batch may reach; `held` are times of those that have no records now."""
    return min([*(next_records.times_ms[0] for next_records in upcoming.values()), *held.values()]) + drift_ms


def aligned_ends(
    begin: Offsets, reachable: Offsets, upcoming: Mapping[TopicPartition, Upcoming], beyond: Offsets, horizon: int
) -> dict[TopicPartition, int]:
    """How far each topic partition may be read.

    `beyond` is the first offset of the whole log whose record reaches the horizon, -1 if there is none.
    """
    ends: dict[TopicPartition, int] = {}
    for partition, end in reachable.items():
        first = beyond.get(partition, -1)
        if partition not in upcoming or first < 0:
            ends[partition] = end
        elif first > begin[partition]:
            ends[partition] = min(end, first)
        else:
            # A record that was read long ago is newer than all of this: only what was looked at is known to be older.
            ends[partition] = min(end, _before(upcoming[partition], horizon, begin[partition]))
    return ends


def _before(upcoming: Upcoming, horizon: int, begin: int) -> int:
    """The offset behind the leading records that are older than the horizon."""
    end = begin
    for offset, time_ms in zip(upcoming.offsets, upcoming.times_ms, strict=True):
        if time_ms >= horizon:
            break
        end = offset + 1
    return end
