"""What a cluster looks like: brokers, topics, leaders. Values, and how to read them from a response. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sparkonce.errors import SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import METADATA
from sparkonce.wire.connection import Address
from sparkonce.wire.verdicts import UNKNOWN_TOPIC_OR_PARTITION, error_for

NO_TOPIC_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic; `leader` is -1 while there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions in order. The id changes when a topic is deleted and made anew."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A cluster as one broker saw it. `problems` holds the topics that could not be described, and why."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Address]
    topics: Mapping[str, Topic]
    problems: Mapping[str, SparkonceError] = field(default_factory=dict)


def metadata_body(topics: Sequence[str] | None) -> dict[str, Any]:
    """A Metadata request: for all topics (None), for some, or for none but the brokers (an empty sequence)."""
    named = None if topics is None else [{"topic_id": NO_TOPIC_ID, "name": name} for name in topics]
    return {
        "topics": named,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def read_metadata(response: Any, cluster_name: str) -> ClusterMetadata:
    """Read a Metadata response. `cluster_name` says in errors where a topic was looked for."""
    problems = {
        topic.name: error_for(METADATA.name, topic.error_code, f"topic {topic.name} on {cluster_name}")
        for topic in response.topics
        if topic.error_code
    }
    return ClusterMetadata(
        cluster_id=response.cluster_id or "",
        controller_id=response.controller_id,
        brokers={b.node_id: Address(b.host, b.port, b.node_id) for b in response.brokers},
        topics={t.name: _read_topic(t) for t in response.topics if not t.error_code},
        problems=problems,
    )


def _read_topic(topic: Any) -> Topic:
    partitions = sorted((_read_partition(p) for p in topic.partitions), key=lambda p: p.index)
    return Topic(topic.name, topic.topic_id or NO_TOPIC_ID, bool(topic.is_internal), tuple(partitions))


def _read_partition(p: Any) -> Partition:
    # A partition whose leader is not available answers 5 together with what is known of it.
    leader = -1 if p.error_code else p.leader_id
    return Partition(
        p.partition_index,
        leader,
        p.leader_epoch,
        tuple(p.replica_nodes),
        tuple(p.isr_nodes),
        tuple(p.offline_replicas),
    )


class LeaderCache:
    """Which broker leads which topic partition, as far as known."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._doubted: set[TopicPartition] = set()

    def update(self, metadata: ClusterMetadata) -> None:
        """Take over what a broker said; the topics it was not asked for stay."""
        self.brokers = dict(metadata.brokers) or self.brokers
        self._topics.update(metadata.topics)
        for name in metadata.problems:
            self._topics.pop(name, None)
        self._doubted = {tp for tp in self._doubted if tp.topic not in metadata.topics}

    def doubt(self, topic_partition: TopicPartition) -> None:
        """Its leader refused us: the next question must be asked anew."""
        self._doubted.add(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> Address | None:
        """The leader, or None if it is unknown or doubted."""
        topic = self._topics.get(topic_partition.topic)
        if topic is None or topic_partition in self._doubted:
            return None
        if not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return self.brokers.get(topic.partitions[topic_partition.partition].leader)

    def topic_id(self, name: str) -> UUID:
        """The id of a topic that was looked up before."""
        topic = self._topics.get(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id

    def why_unknown(self, topic_partition: TopicPartition, cluster_name: str) -> SparkonceError:
        """The error for a topic partition that has no known leader after it was looked up."""
        topic = self._topics.get(topic_partition.topic)
        exists = topic is not None and 0 <= topic_partition.partition < len(topic.partitions)
        code = 5 if exists else UNKNOWN_TOPIC_OR_PARTITION
        return error_for(METADATA.name, code, f"{topic_partition} on {cluster_name}")
