"""What is known about a query, its clusters, its stores and this machine at one moment. Values only.

Where something could not be found out, the reason stands in its place: a check decides what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.fetch.checkpoint import Checkpoint
from sparkonce.model import TopicPartition
from sparkonce.ops.query import Query
from sparkonce.ops.transactions import KnownTransaction
from sparkonce.wire.diagnosis import Operation

Operations = frozenset[Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic in one of its roles."""

    name: str
    role: str
    """source, sink or dead letters; internal for Kafka's own"""
    missing: bool = False
    error: str | None = None
    partitions: int = 0
    replicas: int = 0
    """Of the partition that has the fewest."""
    in_sync: int = 0
    """Of the partition that has the fewest."""
    leaderless: tuple[int, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    configs_error: str | None = None
    allowed: Operations | None = None
    """None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """One cluster, as it is reached by one set of options."""

    servers: str
    error: str | None = None
    """Why nothing of it is known."""
    brokers: Mapping[int, str] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)
    software_level: int | None = None
    """The oldest broker's highest metadata.version."""
    transaction_version: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    configs_error: str | None = None
    topics: tuple[TopicFacts, ...] = ()
    skew_ms: int | None = None
    """How far its clock is ahead of ours; None if it is not known."""

    @property
    def usable(self) -> bool:
        """Whether more can be asked: a broker answers at the address that it advertises."""
        return self.error is None and len(self.unreachable) < max(1, len(self.brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A consumer group that the query uses."""

    name: str
    what: str
    at_sink: bool = True
    """Whether it is in the sink's cluster."""
    allowed: Operations | None = None
    error: str | None = None
    has_members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IdFacts:
    """The transactional id."""

    name: str
    known: KnownTransaction | None = None
    error: str | None = None
    may_write: bool | None = None
    write_error: str | None = None
    owner_lives_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """A database or folder."""

    name: str
    prepares: bool
    error: str | None = None
    leftovers: tuple[str, ...] = ()
    """Names of branches that are prepared and neither committed nor aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Where this runs."""

    python: tuple[int, ...]
    worker_python: str | None = None
    """What PYSPARK_PYTHON says about itself, if it is set and another one."""
    worker_python_error: str | None = None
    java: str | None = None
    java_error: str | None = None
    pyspark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePositions:
    """Where the query is in its topics."""

    next_start: Mapping[TopicPartition, int] = field(default_factory=dict)
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    known_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids that topics had when they were last read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything."""

    query: Query
    now_ms: int
    source: ClusterFacts
    sink: ClusterFacts | None = None
    """The same as `source` if it is the same cluster; None without a Kafka sink."""
    groups: tuple[GroupFacts, ...] = ()
    transactional_id: IdFacts | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_error: str | None = None
    positions: SourcePositions = field(default_factory=SourcePositions)
    stores: tuple[StoreFacts, ...] = ()
    machine: MachineFacts
