"""Plans the micro-batches of a streaming query: what there is to read, how much of it, from where.

One planner lives as long as a query's source process and owns its client. All decisions are in `planning`, `limits`
and `progress`; this file asks the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from sparkonce.deadline import Deadline
from sparkonce.fetch.byte_rates import ByteRates
from sparkonce.fetch.event_time import EventTimes
from sparkonce.fetch.group_commits import GroupCommits
from sparkonce.fetch.limits import available_bytes, available_offsets, limit_offsets, portion
from sparkonce.fetch.lookup import find_partitions, offsets_at
from sparkonce.fetch.lost import (
    before_ends,
    cut_off,
    data_loss,
    ends_before,
    lost_before,
    lost_behind,
    without_lost,
)
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.planning import (
    moved_within,
    new_partitions,
    next_progress,
    only_stopping,
    refuse_vanished,
    require_before_stop,
    require_within,
    until_stop,
)
from sparkonce.fetch.positions import Committed, Earliest, ExactOffsets, Latest
from sparkonce.fetch.progress import Progress, begin_of, begins, ranges_between
from sparkonce.fetch.ranges import OffsetRange, split
from sparkonce.fetch.settings import SourceSettings
from sparkonce.fetch.subscription import Subscribed
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, Isolation

_ASK_AGAIN_SECONDS = 0.25
_LOOK_INTERVAL_MS = 10_000
"""How old the bytes per offset may be where they are only shown and limit nothing."""


class StreamPlanner:
    """Plans one query's micro-batches."""

    def __init__(self, client: Client, settings: SourceSettings) -> None:
        self._client = client
        self._settings = settings
        self._found: Subscribed | None = None
        self._look_again = Deadline.after_ms(0)
        self._target: dict[TopicPartition, int] | None = None
        self._planned_at = time.monotonic()
        self.newest: Progress | None = None
        """What there was to read when a micro-batch was last planned."""
        self._planned: Progress | None = None
        self.planned_bytes: int | None = None
        """About how many bytes, as they lie in the log, the micro-batch reads that was planned last."""
        self.idle_ms = 0
        """For how long there had been nothing to read when a micro-batch was last planned."""
        self._idle_since: float | None = None
        self._byte_rates = ByteRates(client, settings.read.isolation)
        self._look_at_bytes = Deadline.after_ms(0)
        drift_ms = settings.max_event_time_drift_ms
        self._event_times = (
            None if drift_ms is None else EventTimes(client, settings.read, drift_ms, settings.idle_timeout_ms)
        )
        group = settings.commit_group
        self.commits = None if group is None else GroupCommits(client, group)

    def freeze_target(self) -> None:
        """From now on nothing newer than what there is at this moment is read."""
        deadline = self._deadline()
        self._found = find_partitions(self._client, self._settings.subscription, deadline)
        self._target = self._latest(self._found, deadline)

    def next(self, before: Progress, *, unlimited: bool) -> Progress:
        """Where the next micro-batch ends; `before` itself if there is nothing to read (or not enough)."""
        deadline = self._deadline()
        stop = self._stop(before, deadline)
        found = only_stopping(self._partitions(deadline), stop)
        if self._settings.read.fail_on_data_loss:
            refuse_vanished(before, found)
        # The start before the end: records that come in between must not make "latest" lie behind the end.
        first = self._first_offsets(before, found, deadline)
        latest = self._latest(found, deadline) if self._target is None else self._target
        if not before.started:
            first = self._within_log(first, latest, deadline)
            require_before_stop(first, stop)
        cut = self._cut_off(before, found, latest, deadline)
        reachable = until_stop(latest, stop)
        self.newest = next_progress(before, found, first, reachable, stop)
        begin = begins(before, self.newest)
        available = available_offsets(begin, self.newest.end)
        self._note_idle(available)
        if before.started and not unlimited and not cut and self._shall_wait(available):
            return before
        self._planned_at = time.monotonic()
        rates = self._bytes_per_offset(begin, self.newest.end, deadline)
        ends = self.newest.end
        if not unlimited:
            ends = self._limited(begin, self._aligned(begin, ends, deadline), rates)
        self.planned_bytes = available_bytes(begin, ends, rates) if rates else None
        planned = next_progress(before, found, first, ends, stop)
        self._planned = replace(planned, end={**planned.end, **cut})
        return self._planned

    def committed(self, progress: Progress) -> None:
        """Spark has committed everything up to here: show it to the group, if there is one."""
        if self.commits is not None:
            self.commits.commit(progress.end)

    def ranges(self, before: Progress, after: Progress) -> tuple[OffsetRange, ...]:
        """What each Spark task of a micro-batch reads, after a look whether it is all still there."""
        deadline, settings = self._deadline(), self._settings
        wanted = ranges_between(before, after)
        if after != self._planned:
            wanted = self._before_the_ends(wanted, deadline)
        partitions = [piece.topic_partition for piece in wanted]
        earliest = offsets_at(self._client, Earliest(), partitions, settings.read.isolation, deadline)
        return split(
            still_there(wanted, earliest, fail_on_data_loss=settings.read.fail_on_data_loss),
            min_partitions=settings.min_partitions,
            max_records=settings.max_records_per_partition,
        )

    def _deadline(self) -> Deadline:
        return self._client.deadline()

    def _partitions(self, deadline: Deadline) -> Subscribed:
        """The topic partitions, looked up again when the last look is too old, but not behind a frozen target."""
        if self._found is None or (self._target is None and self._look_again.expired):
            self._found = find_partitions(self._client, self._settings.subscription, deadline)
            self._look_again = Deadline.after_ms(self._settings.discovery_interval_ms)
        return self._found

    def _stop(self, before: Progress, deadline: Deadline) -> Offsets | None:
        """Where reading ends: decided in the first plan, like the start."""
        if before.started or self._settings.ending is None:
            return before.stop
        partitions = self._partitions(deadline).partitions
        return offsets_at(self._client, self._settings.ending, partitions, self._settings.read.isolation, deadline)

    def _latest(self, found: Subscribed, deadline: Deadline) -> dict[TopicPartition, int]:
        return offsets_at(self._client, Latest(), found.partitions, self._settings.read.isolation, deadline)

    def _first_offsets(self, before: Progress, found: Subscribed, deadline: Deadline) -> Offsets:
        """Where new topic partitions begin: at the chosen start in the first plan, later at their beginning."""
        position = Earliest() if before.started else self._settings.starting
        new = new_partitions(before, found)
        return offsets_at(self._client, position, new, self._settings.read.isolation, deadline)

    def _within_log(self, first: Offsets, latest: Offsets, deadline: Deadline) -> Offsets:
        """The start, if the log has it; only a start that names offsets can lie outside."""
        settings = self._settings
        earliest = offsets_at(self._client, Earliest(), first.keys(), settings.read.isolation, deadline)
        if settings.read.fail_on_data_loss and isinstance(settings.starting, ExactOffsets | Committed):
            require_within(first, earliest, latest)
        return moved_within(first, earliest, latest)

    def _cut_off(
        self, before: Progress, found: Subscribed, latest: Offsets, deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Logs that have become shorter than what was read, with their ends, where reading goes on."""
        read = {tp: end for tp in found.partitions if (end := begin_of(before, tp, found.topic_ids)) is not None}
        ends = self._too_short(read, latest, deadline)
        if ends and self._settings.read.fail_on_data_loss:
            raise cut_off([OffsetRange(partition, end, read[partition]) for partition, end in sorted(ends.items())])
        return ends

    def _before_the_ends(self, wanted: tuple[OffsetRange, ...], deadline: Deadline) -> tuple[OffsetRange, ...]:
        """The ranges that an earlier process planned, without what logs have lost since."""
        reached = {piece.topic_partition: piece.end for piece in wanted}
        latest = offsets_at(self._client, Latest(), reached, self._settings.read.isolation, deadline)
        ends = self._too_short(reached, latest, deadline)
        if ends and self._settings.read.fail_on_data_loss:
            raise cut_off(lost_behind(wanted, ends))
        return before_ends(wanted, ends)

    def _too_short(self, reached: Offsets, latest: Offsets, deadline: Deadline) -> dict[TopicPartition, int]:
        """Logs that end before what they had, even after a while; records of open transactions count as there."""
        until = deadline.sooner_ms(self._settings.failover_ms)
        short = ends_before(reached, latest)
        while short:
            ends = offsets_at(self._client, Latest(), short, Isolation.READ_UNCOMMITTED, deadline)
            short = ends_before(reached, ends)
            if not short or until.expired:
                break
            self._client.connections.pause(_ASK_AGAIN_SECONDS)
        return short

    def _aligned(self, begin: Offsets, reachable: Offsets, deadline: Deadline) -> Offsets:
        """How far the event times allow to read."""
        if self._event_times is None:
            return reachable
        return self._event_times.align(begin, reachable, deadline, wait_for_idle=self._target is None)

    def _bytes_per_offset(
        self, begin: Offsets, reachable: Offsets, deadline: Deadline
    ) -> Mapping[TopicPartition, float]:
        """Looked at for every plan if bytes are limited, else now and then."""
        if self._settings.max_bytes is not None or self._look_at_bytes.expired:
            self._byte_rates.look(begin, reachable, deadline)
            self._look_at_bytes = Deadline.after_ms(_LOOK_INTERVAL_MS)
        return self._byte_rates.estimate(list(reachable))

    def _limited(self, begin: Offsets, reachable: Offsets, rates: Mapping[TopicPartition, float]) -> Offsets:
        """As much as both limits allow. Where nothing is known of the bytes, an offset may have as many as allowed."""
        settings = self._settings
        known = rates or dict.fromkeys(reachable, float(settings.max_bytes or 0))
        return limit_offsets(
            begin,
            reachable,
            min(
                portion(available_offsets(begin, reachable), settings.max_offsets),
                portion(available_bytes(begin, reachable, known), settings.max_bytes),
            ),
        )

    def _note_idle(self, available: int) -> None:
        now = time.monotonic()
        self.idle_ms = 0 if self._idle_since is None else round((now - self._idle_since) * 1000)
        if available:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now

    def _shall_wait(self, available: int) -> bool:
        settings = self._settings
        if settings.min_offsets is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._planned_at) * 1000
        return available < settings.min_offsets and waited_ms < settings.max_trigger_delay_ms


def still_there(
    wanted: tuple[OffsetRange, ...], earliest: Offsets, *, fail_on_data_loss: bool
) -> tuple[OffsetRange, ...]:
    """The ranges without what retention took; or the error that says what it took."""
    lost = lost_before(wanted, earliest)
    if lost and fail_on_data_loss:
        raise data_loss(lost, "they are older than what the broker keeps (retention, or records deleted on purpose)")
    return without_lost(wanted, earliest)
