"""Transactions as a person sees them: how long each is open, who owns it, and which ones hang (KIP-664).

A transaction hangs in two ways. Its coordinator has it open for longer than its timeout and does not abort it. Or a
topic partition has it open and the coordinator knows nothing of it, so that nobody will ever end it: readers with
read_committed then stand still at that offset. The second kind came from late records before KIP-890.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.errors import SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.ops.owners import Claim, claimed_ids, read_claim, stored
from sparkonce.wire import (
    Client,
    ProducerState,
    TransactionDescription,
    describe_producers,
    list_transactions,
)
from sparkonce.wire.diagnosis import list_groups

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which topic partitions may have records of the transaction that are neither committed nor aborted."""
PATIENCE_MS = 60_000
"""Brokers look for expired transactions every ten seconds; one that is open for so much longer hangs."""
SECOND_LOOK_SECONDS = 1.0
_STATE_TOPIC = "__transaction_state"
_NOT_ALLOWED = 29
_GROUP_NOT_ALLOWED = 30


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """A transactional id as its coordinator knows it, and what drivers of ours left under it."""

    description: TransactionDescription
    claim: Claim = field(default_factory=Claim)

    @property
    def transactional_id(self) -> str:
        """Its name."""
        return self.description.transactional_id

    @property
    def is_open(self) -> bool:
        """Whether a transaction is going on, or being ended."""
        return self.description.state in OPEN_STATES

    def open_ms(self, now_ms: int) -> int | None:
        """For how long it has been open."""
        started = self.description.started_ms
        return max(0, now_ms - started) if self.is_open and started >= 0 else None

    def overdue_ms(self, now_ms: int) -> int:
        """For how much longer than its timeout it is open; 0 if it is not."""
        open_ms = self.open_ms(now_ms)
        return 0 if open_ms is None else max(0, open_ms - self.description.timeout_ms)

    def hangs(self, now_ms: int) -> bool:
        """Whether the broker should have aborted it long ago."""
        return self.overdue_ms(now_ms) > PATIENCE_MS


@dataclass(frozen=True, slots=True, order=True)
class OpenRange:
    """Records of a transaction in one topic partition that are neither committed nor aborted."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction in a topic partition that its coordinator does not know."""

    range: OpenRange
    transactional_id: str | None
    """The id that the producer has, if it has one; its own transaction is another one, or none."""

    @property
    def remedy(self) -> str:
        """How it is ended: only a transaction marker helps, which an administrator writes with Kafka's own tool."""
        partition = self.range.topic_partition
        return (
            f"kafka-transactions.sh --bootstrap-server … abort --topic {partition.topic} "
            f"--partition {partition.partition} --start-offset {self.range.start_offset}"
        )


@dataclass(frozen=True, slots=True)
class Overview:
    """All transactions of a cluster at one moment."""

    now_ms: int
    transactions: tuple[KnownTransaction, ...]
    hanging: tuple[Hanging, ...] = ()
    unseen_topics: tuple[str, ...] = ()
    """Topics whose producers this client may not look at."""

    @property
    def has_problems(self) -> bool:
        """Whether anything hangs."""
        return bool(self.hanging) or any(one.hangs(self.now_ms) for one in self.transactions)


def now_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


# Pure.


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Those that begin with the pattern, or match it if it has * or ?."""
    if pattern is None:
        return sorted(names)
    wanted = pattern if any(sign in pattern for sign in "*?[") else f"{pattern}*"
    return sorted(name for name in names if fnmatch.fnmatchcase(name, wanted))


def open_ranges(producers: Mapping[TopicPartition, Collection[ProducerState]]) -> list[OpenRange]:
    """From what leaders remember of producers to what is open."""
    return sorted(
        OpenRange(tp, s.producer_id, s.producer_epoch, s.transaction_start_offset, s.last_timestamp_ms)
        for tp, states in producers.items()
        for s in states
        if s.transaction_start_offset >= 0
    )


def unknown_ranges(ranges: Iterable[OpenRange], descriptions: Iterable[TransactionDescription]) -> list[OpenRange]:
    """Those of which no coordinator has an open transaction in that topic partition."""
    known = {(d.producer_id, tp) for d in descriptions if d.state in OPEN_STATES for tp in d.partitions}
    return [one for one in ranges if (one.producer_id, one.topic_partition) not in known]


# Asking the cluster.


def overview(client: Client, pattern: str | None = None, *, scan: bool = True) -> Overview:
    """Everything; `scan` looks for hanging transactions in all topic partitions that this client may see."""
    listed = list_transactions(client)
    ours = claimed_ids(list_groups(client))
    found = []
    for name in matching({listing.transactional_id for listing in listed}, pattern):
        description = stored(client, name)
        if description is not None:
            claim = read_claim(client, name, description.producer_id) if name in ours else Claim()
            found.append(KnownTransaction(description, claim))
    hanging, unseen = find_hanging(client) if scan else ((), ())
    return Overview(now_ms(), tuple(found), hanging, unseen)


def describe(client: Client, transactional_id: str) -> KnownTransaction:
    """One id; UsageError if the cluster does not know it."""
    description = stored(client, transactional_id)
    if description is None:
        known = [listing.transactional_id for listing in list_transactions(client)]
        near = matching(known, f"{transactional_id[:3]}*")[:5]
        hint = f" Known are for example {', '.join(near)}" if near else " `sparkonce transactions list` shows all"
        raise UsageError(f"{client.cluster_name} does not know the transactional id {transactional_id}.{hint}")
    try:
        return KnownTransaction(description, read_claim(client, transactional_id, description.producer_id))
    except SparkonceError as error:
        if error.fault is None or error.fault.code != _GROUP_NOT_ALLOWED:
            raise
        return KnownTransaction(description, Claim(problem=str(error)))


def find_hanging(client: Client) -> tuple[tuple[Hanging, ...], tuple[str, ...]]:
    """What hangs in topic partitions, and the topics that this client may not look at.

    What looks like it is looked at twice: markers may be on their way, and a transaction may have begun in between.
    """
    topics = client.metadata(None).topics.values()
    partitions = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        if topic.name != _STATE_TOPIC
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    producers, unseen = _producers(client, partitions)
    first = unknown_ranges(open_ranges(producers), _open_descriptions(client))
    if not first:
        return (), unseen
    client.connections.pause(SECOND_LOOK_SECONDS)
    again, _ = _producers(client, [one.topic_partition for one in first])
    still = {(one.topic_partition, one.producer_id, one.start_offset) for one in open_ranges(again)}
    second = [one for one in first if (one.topic_partition, one.producer_id, one.start_offset) in still]
    names = {listing.producer_id: listing.transactional_id for listing in list_transactions(client)}
    confirmed = unknown_ranges(second, _open_descriptions(client))
    return tuple(Hanging(one, names.get(one.producer_id)) for one in confirmed), unseen


def _open_descriptions(client: Client) -> list[TransactionDescription]:
    listed = list_transactions(client, states=sorted(OPEN_STATES - {"PrepareEpochFence"}))
    found = [stored(client, listing.transactional_id) for listing in listed]
    return [description for description in found if description is not None]


def _producers(
    client: Client, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[ProducerState, ...]], tuple[str, ...]]:
    """All at once; topic by topic if some may not be looked at."""
    if not partitions:
        return {}, ()
    try:
        return describe_producers(client, partitions), ()
    except SparkonceError as error:
        if error.fault is None or error.fault.code != _NOT_ALLOWED:
            raise
    found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
    unseen = []
    for topic in sorted({tp.topic for tp in partitions}):
        try:
            found |= describe_producers(client, [tp for tp in partitions if tp.topic == topic])
        except SparkonceError as error:
            if error.fault is None or error.fault.code != _NOT_ALLOWED:
                raise
            unseen.append(topic)
    return found, tuple(unseen)


def still_open(client: Client, description: TransactionDescription) -> list[OpenRange]:
    """What of a transaction its topic partitions still have open; those that may not be looked at are left out."""
    producers, _ = _producers(client, description.partitions)
    return [one for one in open_ranges(producers) if one.producer_id == description.producer_id]
