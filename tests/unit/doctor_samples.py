"""What the doctor gathers: a query that is well, and the same with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sparkonce.fetch import TopicNames
from sparkonce.fetch.checkpoint import Checkpoint, LoggedBatch
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.ops import KafkaSinkTarget, Query, SourceTarget
from sparkonce.ops.doctor.facts import (
    ClusterFacts,
    Facts,
    GroupFacts,
    IdFacts,
    MachineFacts,
    SourcePositions,
    StoreFacts,
    TopicFacts,
)
from sparkonce.ops.owners import Claim
from sparkonce.ops.transactions import KnownTransaction
from sparkonce.options import ConnectionOptions
from sparkonce.transaction import Marker, Owner
from sparkonce.wire import TransactionDescription
from sparkonce.wire.diagnosis import Operation

NOW = 1_800_000_000_000
HERE = ConnectionOptions(bootstrap_servers="here:9092")
A0 = TopicPartition("orders", 0)
ALL = frozenset(Operation)
SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "cleanup.policy": "delete",
}
LIMITS = {
    "transaction.max.timeout.ms": "900000",
    "offsets.retention.minutes": "10080",
    "transactional.id.expiration.ms": "604800000",
    "transaction.state.log.min.isr": "2",
}
OWNER = Owner("host-a", 4711, "q-1")


def topic(name: str, role: str, **more: Any) -> TopicFacts:
    good = TopicFacts(name=name, role=role, partitions=4, replicas=3, in_sync=3, configs=SAFE, allowed=ALL)
    return replace(good, **more)


def cluster(**more: Any) -> ClusterFacts:
    good = ClusterFacts(
        servers="here:9092",
        brokers={1: "b1:9092", 2: "b2:9092", 3: "b3:9092"},
        software_level=30,
        transaction_version=2,
        configs=LIMITS,
        topics=(topic("orders", "source"), topic("big-orders", "sink"), topic("__transaction_state", "internal")),
        skew_ms=12,
    )
    return replace(good, **more)


def batch(number: int, planned_ms: int = NOW - 1_000) -> LoggedBatch:
    return LoggedBatch(number, planned_ms, (f"offsets-{number}",), "")


def known(
    state: str = "Empty", open_ms: int | None = None, marker: Marker | None = None, **more: Any
) -> KnownTransaction:
    started = -1 if open_ms is None else NOW - open_ms
    claim = replace(Claim(OWNER, marker or marker_of(5), A0), **more)
    return KnownTransaction(TransactionDescription("big", state, 12, 4, 60_000, started, (A0,)), claim)


def marker_of(number: int, query_id: str = "q-1", digest: str | None = None) -> Marker:
    return Marker(number, Owner("host-a", 4711, query_id), ProducerIdentity(12, 3), digest or batch(number).digest)


def healthy() -> Facts:
    query = Query(
        name="big-orders",
        checkpoint="/checkpoints/big",
        source=SourceTarget(connection=HERE, subscription=TopicNames(("orders",))),
        sink=KafkaSinkTarget(
            connection=HERE,
            topic="big-orders",
            transactional_id="big",
            transaction_timeout_ms=60_000,
            batch_bytes=1_048_588,
        ),
    )
    return Facts(
        query=query,
        now_ms=NOW,
        source=cluster(),
        sink=cluster(),
        groups=(GroupFacts(name="sparkonce.big", what="the marker's", allowed=ALL),),
        transactional_id=IdFacts(name="big", known=known(), may_write=True),
        checkpoint=Checkpoint(Path("/checkpoints/big"), "q-1", batch(5), batch(5)),
        positions=SourcePositions(next_start={A0: 40}, earliest={A0: 0}, latest={A0: 50}),
        stores=(StoreFacts(name="postgres shop orders", prepares=True),),
        machine=MachineFacts(python=(3, 12, 1), java="21.0.2 (PATH)", pyspark="4.2.0"),
    )


def with_cluster(**more: Any) -> Facts:
    changed = cluster(**more)
    return replace(healthy(), source=changed, sink=changed)


def with_topic(role: str, **more: Any) -> Facts:
    topics = tuple(replace(one, **more) if one.role == role else one for one in cluster().topics)
    return with_cluster(topics=topics)


def with_config(name: str, value: str) -> Facts:
    return with_cluster(configs=LIMITS | {name: value})


def with_topic_config(name: str, value: str, role: str = "sink") -> Facts:
    return with_topic(role, configs=SAFE | {name: value})


def with_id(**more: Any) -> Facts:
    return replace(healthy(), transactional_id=replace(IdFacts(name="big", known=known(), may_write=True), **more))


def with_checkpoint(planned: LoggedBatch | None, committed: LoggedBatch | None, **more: Any) -> Facts:
    return replace(with_id(**more), checkpoint=Checkpoint(Path("/checkpoints/big"), "q-1", planned, committed))


def with_machine(**more: Any) -> Facts:
    return replace(healthy(), machine=replace(healthy().machine, **more))
