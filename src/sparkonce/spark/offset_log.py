"""What Spark's own log says of the micro-batch that is running: its query, its end offsets, when it was planned.

Found through the query id that Spark sets in the callback's thread, and read with Hadoop's file system, so that any
place that Spark can write its checkpoint to can be read. This is the one place that reaches into the JVM for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import offsets_digest, parse_batch
from sparkonce.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A micro-batch as Spark's offset log has it."""

    query_id: str
    run_id: str
    """Changes with every start of the query."""
    batch_id: int
    planned_ms: int
    sources: tuple[str, ...]
    """The end offsets of each source, as the source wrote them."""
    checkpoint: str = ""
    """Where Spark keeps the query's checkpoint, as an address of Hadoop's file systems."""

    @property
    def digest(self) -> str:
        """Tells two plans of a batch with the same number apart."""
        return offsets_digest(self.sources)

    def kafka_offsets(self) -> dict[TopicPartition, int]:
        """The end offsets of all Kafka sources, ours and Spark's built-in one."""
        found: dict[TopicPartition, int] = {}
        for source in self.sources:
            found |= _kafka_offsets(source)
        return found


def current_query_id(spark: SparkSession) -> str:
    """The id of the query in whose callback this is called."""
    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise UsageError("the sink was called outside of a streaming query; use sink.write(df) for a bounded DataFrame")
    return str(query_id)


def read_planned_batch(spark: SparkSession, query_id: str, batch_id: int) -> PlannedBatch:
    """Reads the entry that Spark wrote for the batch before it called us."""
    execution = _execution(spark, query_id)
    root = str(execution.resolvedCheckpointRoot())
    text = _read_text(spark, f"{root}/offsets/{batch_id}")
    return replace(parse_planned_batch(query_id, str(execution.runId().toString()), batch_id, text), checkpoint=root)


def parse_planned_batch(query_id: str, run_id: str, batch_id: int, text: str) -> PlannedBatch:
    """An entry of the log, and whose it is."""
    logged = parse_batch(batch_id, text)
    return PlannedBatch(query_id, run_id, batch_id, logged.planned_ms, logged.sources)


def _execution(spark: SparkSession, query_id: str) -> Any:
    java = spark.sparkContext._jvm
    assert java is not None  # noqa: S101  A classic session always has one.
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(java.java.util.UUID.fromString(query_id))
    if execution is None:
        raise UsageError(f"Spark does not know a running query {query_id}")
    return execution


def _read_text(spark: SparkSession, path: str) -> str:
    java = spark.sparkContext._jvm
    assert java is not None  # noqa: S101
    place = java.org.apache.hadoop.fs.Path(path)
    stream = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).open(place)
    try:
        return bytes(java.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
    finally:
        stream.close()


def _kafka_offsets(source: str) -> dict[TopicPartition, int]:
    """{"topic": {"0": 5}}, as Spark's Kafka source writes it, or with that as "end", as ours does (`fetch.Progress`);
    {} for a source of another kind.
    """
    try:
        topics = json.loads(source)
        if isinstance(topics.get("version"), int):
            topics = topics["end"]
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}
