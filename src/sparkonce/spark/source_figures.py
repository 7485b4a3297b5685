"""What a running query says about its sparkonce sources, as Python objects: from Spark's progress, without a question
to Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.errors import UsageError
from sparkonce.fetch import Progress, progress_from_json
from sparkonce.fetch.offset_maps import Offsets, flat
from sparkonce.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """One topic partition as of the last micro-batch."""

    topic_partition: TopicPartition
    current_offset: int
    latest_offset: int
    committed_offset: int | None = None
    """What the group was shown before this micro-batch, by this run of the query; None: nothing, or it is not shown."""

    @property
    def pending_offsets(self) -> int:
        """How far behind the query is; fewer records, where some were compacted away or belong to transactions."""
        return self.latest_offset - self.current_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMetrics:
    """One source as of the last micro-batch."""

    partitions: tuple[PartitionMetrics, ...]
    records: int
    records_per_second: float
    estimated_bytes: int | None
    """What the micro-batch read, as it lies in the log, that is compressed. An estimate, from a look at its beginning;
    None if none was made, as for a micro-batch that an earlier run had planned."""
    estimated_bytes_per_second: float | None
    idle_ms: int
    """For how long there had been nothing to read when this micro-batch was planned."""
    commits_succeeded: int
    commits_failed: int
    watermark_lag_ms: int | None
    """How far the query's watermark lies behind the clock; None without a watermark."""
    event_time_lag_ms: int | None
    """How old the newest event of the micro-batch was when it was planned; None without a watermark or events."""

    @property
    def pending_offsets(self) -> int:
        """How far behind the query is, over all topic partitions."""
        return sum(partition.pending_offsets for partition in self.partitions)


def source_idle_ms(query: StreamingQuery) -> int | None:
    """For how long there has been nothing to read up to now; 0 while there is, None before the first micro-batch."""
    recent = query.recentProgress
    if not recent:
        return None
    if query.status["isDataAvailable"]:
        return 0
    # While it waits, Spark tells of micro-batches that never were; after a hundred of them the last real one is gone.
    last = next((progress for progress in reversed(recent) if progress["numInputRows"]), recent[0])
    told: dict[str, Any] = json.loads(last.json)
    ended = datetime.fromisoformat(told["timestamp"]) + timedelta(milliseconds=int(told.get("batchDuration", 0)))
    return max(0, int((datetime.now(UTC) - ended).total_seconds() * 1000))


def source_metrics(progress: StreamingQueryProgress) -> tuple[SourceMetrics, ...]:
    """The metrics of a query's sparkonce sources, from `query.lastProgress`."""
    told: dict[str, Any] = json.loads(progress.json)
    return tuple(_metrics(source, told) for source in told["sources"] if _is_ours(source))


def _is_ours(source: Mapping[str, Any]) -> bool:
    try:
        return progress_from_json(source["endOffset"]).started and "version" in source["endOffset"]
    except (UsageError, AttributeError, KeyError, TypeError):
        return False


def _metrics(source: Mapping[str, Any], told: Mapping[str, Any]) -> SourceMetrics:
    latest = source.get("latestOffset") or source["endOffset"]
    commits = latest.get("commits", {})
    planned_bytes = latest.get("bytes")
    took_ms = told.get("durationMs", {}).get("triggerExecution")
    event_time = told.get("eventTime") or {}
    return SourceMetrics(
        partitions=_partitions(
            progress_from_json(source["endOffset"]),
            progress_from_json(latest),
            flat(commits.get("offsets", {}), "the committed offsets"),
        ),
        records=int(source["numInputRows"]),
        records_per_second=float(source.get("processedRowsPerSecond") or 0),
        estimated_bytes=planned_bytes,
        estimated_bytes_per_second=planned_bytes * 1000 / took_ms if planned_bytes is not None and took_ms else None,
        idle_ms=int(latest.get("idleMs", 0)),
        commits_succeeded=int(commits.get("succeeded", 0)),
        commits_failed=int(commits.get("failed", 0)),
        watermark_lag_ms=_lag_ms(told["timestamp"], event_time.get("watermark")),
        event_time_lag_ms=_lag_ms(told["timestamp"], event_time.get("max")),
    )


def _partitions(current: Progress, latest: Progress, committed: Offsets) -> tuple[PartitionMetrics, ...]:
    return tuple(
        PartitionMetrics(partition, offset, max(offset, latest.end.get(partition, offset)), committed.get(partition))
        for partition, offset in sorted(current.end.items())
    )


def _lag_ms(now: str, then: str | None) -> int | None:
    if then is None:
        return None
    return int((datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds() * 1000)
