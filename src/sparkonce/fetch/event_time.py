"""Asks the cluster what `alignment` has to know: the times of the next records, and where a time is reached."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from sparkonce.deadline import Deadline
from sparkonce.fetch.ahead import ReadSettings
from sparkonce.fetch.alignment import Upcoming, aligned_ends, horizon_ms
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.ranges import OffsetRange
from sparkonce.fetch.reading import read_range
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, list_offsets

_LOOK_BYTES = 64 * 1024
_LOOK_RECORDS = 1_000


class EventTimes:
    """The event times of one query's topic partitions."""

    def __init__(self, client: Client, read: ReadSettings, max_drift_ms: int, idle_timeout_ms: int) -> None:
        self._client = client
        self._read = replace(read, fetch_bytes=_LOOK_BYTES, ahead_bytes=0)
        self._max_drift_ms = max_drift_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._last_seen: dict[TopicPartition, tuple[float, int]] = {}

    def align(self, begin: Offsets, reachable: Offsets, deadline: Deadline, *, wait_for_idle: bool) -> Offsets:
        """How far each topic partition may be read in the next micro-batch."""
        upcoming = self._upcoming(begin, reachable)
        if not upcoming:
            return reachable
        held = self._held(upcoming) if wait_for_idle else {}
        horizon = horizon_ms(upcoming, held, self._max_drift_ms)
        found = list_offsets(
            self._client, dict.fromkeys(upcoming, horizon), isolation=self._read.isolation, deadline=deadline
        )
        beyond = {partition: listed.offset for partition, listed in found.items()}
        return aligned_ends(begin, reachable, upcoming, beyond, horizon)

    def _upcoming(self, begin: Offsets, reachable: Offsets) -> dict[TopicPartition, Upcoming]:
        """The next records of those topic partitions that have any."""
        upcoming: dict[TopicPartition, Upcoming] = {}
        for partition, end in reachable.items():
            looked = self._look(OffsetRange(partition, begin[partition], end))
            if looked is not None:
                upcoming[partition] = looked
                self._last_seen[partition] = (time.monotonic(), looked.times_ms[0])
        return upcoming

    def _look(self, wanted: OffsetRange) -> Upcoming | None:
        if wanted.offsets <= 0:
            return None
        rows = next(read_range(self._client, wanted, self._read), None)
        if rows is None:
            return None
        few = rows.slice(0, _LOOK_RECORDS)
        times = few["timestamp"].cast(pa.int64()).to_pylist()
        return Upcoming(tuple(few["offset"].to_pylist()), tuple(times))

    def _held(self, upcoming: Mapping[TopicPartition, Upcoming]) -> dict[TopicPartition, int]:
        """Those that have no records now, but had some a short while ago, hold the others at their last time."""
        now = time.monotonic()
        return {
            partition: time_ms
            for partition, (seen, time_ms) in self._last_seen.items()
            if partition not in upcoming and (now - seen) * 1000 < self._idle_timeout_ms
        }
