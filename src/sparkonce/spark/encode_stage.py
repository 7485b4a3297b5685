"""Stage 1, in tasks: Arrow batches of rows → encoded record batches, addressed to the task that will send them.

Each task ends with a manifest for every share: which attempt encoded, and how many records for each partition. By it
the sender knows that nothing is missing, and the driver that all shares were made by the same attempts: after a lost
executor Spark may encode again, and a query that is not deterministic then gives other rows.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import (
    Codec,
    EncodedBatch,
    Partitioner,
    StickyPartition,
    custom_partitions,
    encode,
    partition_rows,
    record_columns,
    rows_of_partitions,
)
from sparkonce.spark.shuffled import Frames
from sparkonce.spark.sink_options import SinkOptions
from sparkonce.spark.this_task import this_task
from sparkonce.wire import Client

BUFFERED_BYTES_MAX = 64 * 1024 * 1024
HANDED_OVER_BYTES = 4 * 1024 * 1024
"""How much is given to Spark at once: every Arrow batch costs, and so does a large one."""


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """How rows become record batches; it travels to the tasks."""

    connection: ConnectionOptions
    topic: str | None
    partition_counts: dict[str, int]
    codec: Codec
    batch_bytes_max: int
    partitioner: str | Partitioner

    @classmethod
    def of(cls, options: SinkOptions, client: Client) -> EncodePlan:
        """The plan of a sink's options; the topic's partitions are looked up once, so that all tasks agree."""
        counts = {} if options.topic is None else {options.topic: partition_count(client, options.topic)}
        return cls(options.connection, options.topic, counts, options.codec, options.batch_bytes, options.partitioner)

    def gather_bytes(self) -> int:
        """How many bytes of rows to encode at once, so that each partition's batches get large."""
        partitions = self.partition_counts.get(self.topic, 1) if self.topic else 8
        return min(BUFFERED_BYTES_MAX, self.batch_bytes_max * partitions)


@dataclass(frozen=True, slots=True)
class EncodeStage:
    """The function that Spark maps over the Arrow batches of a partition."""

    plan: EncodePlan
    shares: int

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encodes; the manifests come last."""
        context = this_task()
        origin = context.partitionId()
        chunks: Counter[TopicPartition] = Counter()
        records: Counter[TopicPartition] = Counter()
        frames = Frames(origin)
        for partition, batch in Encoder(self.plan, origin).encode(arrow_batches):
            frames.add(share_of(partition, self.shares), partition, chunks[partition], batch.data)
            chunks[partition] += 1
            records[partition] += batch.record_count
            if frames.waiting_bytes >= HANDED_OVER_BYTES:
                yield frames.taken()
        self._add_manifests(frames, origin, context.taskAttemptId(), records)
        yield frames.taken()

    def _add_manifests(self, frames: Frames, origin: int, attempt: int, records: Counter[TopicPartition]) -> None:
        """One a share, also for those that get nothing from here."""
        for share in range(self.shares):
            counts = [
                [partition.topic, partition.partition, count]
                for partition, count in records.items()
                if share_of(partition, self.shares) == share
            ]
            text = json.dumps({"origin": origin, "attempt": attempt, "records": counts})
            frames.add_manifest(share, text.encode())


def share_of(partition: TopicPartition, shares: int) -> int:
    """The sending task of a partition: neighbours go to different tasks, and so do the same numbers of two topics."""
    return (zlib.crc32(partition.topic.encode()) + partition.partition) % shares


def _gathered(arrow_batches: Iterator[pa.RecordBatch], enough_bytes: int) -> Iterator[pa.RecordBatch]:
    """Fewer, larger Arrow batches: Spark's have ten thousand rows, which spread over many partitions are little."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in arrow_batches:
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= enough_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class Encoder:
    """One task's encoding: it keeps the sticky partition of each topic from one Arrow batch to the next."""

    def __init__(self, plan: EncodePlan, origin: int) -> None:
        self._plan = plan
        self._origin = origin
        self._sticky: dict[str, StickyPartition] = {}
        self._looked_up: dict[str, int] = {}

    def encode(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, EncodedBatch]]:
        """Record batches and where they go; those of one partition are in the order of the rows."""
        for rows in _gathered(arrow_batches, self._plan.gather_bytes()):
            for topic, of_topic in self._by_topic(rows):
                yield from self._encode_topic(topic, of_topic)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        default = self._plan.topic
        if "topic" not in rows.schema.names:
            if default is None:
                raise UsageError("a row has no topic: set the sink's topic, or give the rows a column 'topic'")
            yield default, rows
            return
        topics = rows["topic"] if default is None else pc.fill_null(rows["topic"], default)
        if topics.null_count:
            raise UsageError("a row has a null in the column 'topic', and the sink has no topic of its own")
        for topic in pc.unique(topics).to_pylist():
            yield topic, rows.filter(pc.equal(topics, topic))

    def _encode_topic(self, topic: str, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, EncodedBatch]]:
        plan, count = self._plan, self._partition_count(topic)
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns = record_columns(
            given["value"],
            key=given.get("key"),
            headers=given.get("headers"),
            timestamp=given.get("timestamp"),
            default_timestamp_ms=time.time_ns() // 1_000_000,
        )
        explicit = given.get("partition")
        if callable(plan.partitioner):
            explicit = custom_partitions(plan.partitioner, rows, count)
        elif plan.partitioner == "fixed" and explicit is not None and explicit.null_count:
            raise UsageError("a row has a null in the column 'partition', which the partitioner 'fixed' keeps")
        sticky = self._sticky.get(topic) or StickyPartition(self._origin % count)
        partitions, self._sticky[topic] = partition_rows(columns, count, explicit=explicit, sticky=sticky)
        for index, chosen in rows_of_partitions(partitions, count):
            for batch in encode(columns, chosen, codec=plan.codec, batch_bytes_max=plan.batch_bytes_max):
                yield TopicPartition(topic, index), batch

    def _partition_count(self, topic: str) -> int:
        known = self._plan.partition_counts.get(topic) or self._looked_up.get(topic)
        if known is None:
            with Client(self._plan.connection) as client:
                known = self._looked_up[topic] = partition_count(client, topic)
        return known


def partition_count(client: Client, topic: str) -> int:
    """How many partitions a topic has; raises if it does not exist."""
    client.leader(TopicPartition(topic, 0))
    return len(client.metadata([topic]).topics[topic].partitions)
