"""What Spark's own log says of the micro-batch that is running: its query, its end offsets, when it was planned.

Found through the query id that Spark sets in the callback's thread, and read with Hadoop's file system, so that any
place that Spark can write its checkpoint to can be read. This is the one place that reaches into the JVM for it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition

_LOG_VERSION = "v1"
_NO_OFFSET = "-"


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
        return hashlib.sha256("\n".join(self.sources).encode()).hexdigest()[:16]

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
    """Three or more lines: the version, the batch's metadata, and one line a source."""
    # Not splitlines: it would also cut at characters that may stand in a source's JSON.
    version, *lines = text.rstrip("\n").split("\n")
    if version != _LOG_VERSION:
        raise UsageError(f"Spark's offset log has version {version!r}, sparkonce knows {_LOG_VERSION!r}")
    try:
        planned_ms = int(json.loads(lines[0])["batchTimestampMs"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"Spark's offset log of batch {batch_id} of query {query_id} cannot be read") from error
    sources = tuple(line for line in lines[1:] if line != _NO_OFFSET)
    return PlannedBatch(query_id, run_id, batch_id, planned_ms, sources)


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
