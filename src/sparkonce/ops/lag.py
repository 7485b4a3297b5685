"""How far behind a query is: what it has committed against what there is to read.

The lag is counted in offsets. Markers of transactions and records removed by compaction have offsets too, so there are
at most as many records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.deadline import Deadline
from sparkonce.errors import SparkonceError
from sparkonce.fetch import Earliest, Latest
from sparkonce.fetch.checkpoint import Checkpoint, read_checkpoint
from sparkonce.fetch.lookup import find_partitions, offsets_at
from sparkonce.fetch.subscription import Subscribed
from sparkonce.model import TopicPartition
from sparkonce.ops.query import Query
from sparkonce.ops.transactions import now_ms
from sparkonce.records import read_headers
from sparkonce.wire import Client, FetchFrom, FetchSettings, committed_offsets, fetch

LOOKS_MAX = 100
"""So many topic partitions are asked for the time of their next record; those that are furthest behind."""
_LOOK_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One topic partition."""

    topic_partition: TopicPartition
    current: int | None
    """The next offset to read; None if nothing was committed yet."""
    earliest: int
    end: int
    groups: Mapping[str, int] = field(default_factory=dict)
    """What groups have, by their names."""
    behind_ms: int | None = None
    """How old the next record is; None if there is none, or it is not known."""

    @property
    def lag(self) -> int | None:
        """In offsets. What retention has taken already is not counted: nobody can read it any more."""
        return None if self.current is None else max(0, self.end - max(self.current, self.earliest))

    @property
    def lost(self) -> int:
        """Offsets that were deleted before they were read."""
        return 0 if self.current is None else max(0, self.earliest - self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A whole query."""

    partitions: tuple[PartitionLag, ...]
    basis: str
    """Where the current offsets are from."""
    batch_id: int | None = None
    unfinished: int | None = None
    """The micro-batch that is planned and not committed."""

    @property
    def total(self) -> int | None:
        """In offsets; None if nothing is known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None

    @property
    def behind_ms(self) -> int | None:
        """The oldest record that is not read yet."""
        return max((one.behind_ms for one in self.partitions if one.behind_ms is not None), default=None)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a query and its topics stand, before anything is computed from it."""

    found: Subscribed
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    groups: Mapping[str, Mapping[TopicPartition, int]]


def query_lag(query: Query) -> Lag:
    """Reads the checkpoint and asks the cluster. A checkpoint that cannot be read from here leaves the groups."""
    checkpoint, basis = _checkpoint(query)
    with Client(query.source.connection) as client:
        standing = look(client, query)
        current = _current(query, checkpoint, standing)
        bare = tuple(partition_lag(tp, current.get(tp), standing) for tp in standing.found.partitions)
        times = next_times(client, query, bare)
    clock = now_ms()
    timed = tuple(_timed(one, times.get(one.topic_partition), clock) for one in bare)
    return Lag(
        partitions=timed,
        basis=basis,
        batch_id=checkpoint.committed.batch_id if checkpoint and checkpoint.committed else None,
        unfinished=checkpoint.unfinished.batch_id if checkpoint and checkpoint.unfinished else None,
    )


def _checkpoint(query: Query) -> tuple[Checkpoint | None, str]:
    try:
        checkpoint = read_checkpoint(query.checkpoint)
    except SparkonceError as error:
        if not query.groups:
            raise
        return None, f"group {query.groups[0]}, since {error}"
    if checkpoint.committed is None:
        return checkpoint, "no micro-batch is committed yet"
    return checkpoint, f"batch {checkpoint.committed.batch_id}, the newest that Spark has committed"


def _current(query: Query, checkpoint: Checkpoint | None, standing: Standing) -> Mapping[TopicPartition, int]:
    if checkpoint is None:
        return standing.groups.get(query.groups[0], {})
    return checkpoint.next_start()


def look(client: Client, query: Query) -> Standing:
    """Topic partitions, what they have, and what groups say."""
    until, source = client.deadline(), query.source
    found = find_partitions(client, source.subscription, until)
    earliest = offsets_at(client, Earliest(), found.partitions, source.isolation, until)
    latest = offsets_at(client, Latest(), found.partitions, source.isolation, until)
    return Standing(found, earliest, latest, group_offsets(client, query))


def group_offsets(client: Client, query: Query) -> dict[str, dict[TopicPartition, int]]:
    """What the query's groups have committed. The sink's group is in the sink's cluster."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for group in query.groups:
        if query.sink is not None and group == query.sink.offsets_group:
            with Client(query.sink.connection) as sink_client:
                offsets = committed_offsets(sink_client, group, require_stable=False)
        else:
            offsets = committed_offsets(client, group, require_stable=False)
        found[group] = {tp: value.offset for tp, value in offsets.items()}
    return found


def partition_lag(tp: TopicPartition, current: int | None, standing: Standing) -> PartitionLag:
    """Pure: one topic partition of a standing."""
    groups = {name: offsets[tp] for name, offsets in standing.groups.items() if tp in offsets}
    return PartitionLag(
        topic_partition=tp, current=current, earliest=standing.earliest[tp], end=standing.latest[tp], groups=groups
    )


def _timed(one: PartitionLag, timestamp_ms: int | None, clock_ms: int) -> PartitionLag:
    behind = None if timestamp_ms is None else max(0, clock_ms - timestamp_ms)
    return PartitionLag(
        topic_partition=one.topic_partition,
        current=one.current,
        earliest=one.earliest,
        end=one.end,
        groups=one.groups,
        behind_ms=behind,
    )


def next_times(client: Client, query: Query, partitions: tuple[PartitionLag, ...]) -> dict[TopicPartition, int]:
    """When the next record of each topic partition was made, from a look at its record batch.

    One request each: a record batch that is larger than the look comes only to the first topic partition of a request.
    """
    behind = sorted((one for one in partitions if one.lag), key=lambda one: -(one.lag or 0))[:LOOKS_MAX]
    settings = FetchSettings(isolation=query.source.isolation, max_wait_ms=0)
    found: dict[TopicPartition, int] = {}
    for one in behind:
        tp, offset = one.topic_partition, max(one.current or 0, one.earliest)
        try:
            fetched = fetch(client, {tp: FetchFrom(offset, 1)}, settings, Deadline.after_ms(_LOOK_MS))[tp]
            headers = read_headers(fetched.records, tp)
        except SparkonceError:
            continue  # The time is an extra; the offsets stand.
        if len(headers) and int(headers.base_timestamp[0]) > 0:
            found[tp] = int(headers.base_timestamp[0])
    return found
