"""Metrics from what Spark says of a micro-batch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sparkonce.fetch import Progress
from sparkonce.model import TopicPartition
from sparkonce.spark.source_figures import PartitionMetrics, source_metrics

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def told(**more: Any) -> StreamingQueryProgress:
    end = Progress({A: 0, B: 0}, {A: 10, B: 20}, {"t": "id"}).to_json()
    latest = Progress({A: 0, B: 0}, {A: 15, B: 20}, {"t": "id"}).to_json() | {
        "commits": {"succeeded": 3, "failed": 1, "offsets": {"t": {"0": 4}}},
        "bytes": 1_000,
        "idleMs": 70,
    }
    ours = {"endOffset": end, "latestOffset": latest, "numInputRows": 7, "processedRowsPerSecond": 3.5}
    foreign = [{"endOffset": value, "numInputRows": 1} for value in ({"t": {"0": 5}}, 17, None, {"logOffset": 3})]
    value = {
        "id": "00000000-0000-0000-0000-000000000000",
        "runId": "00000000-0000-0000-0000-000000000000",
        "timestamp": "2026-01-01T00:00:10.000Z",
        "sources": [*foreign, ours],
        **more,
    }

    class Told(StreamingQueryProgress):
        def __init__(self) -> None:
            pass

        @property
        def json(self) -> str:
            return json.dumps(value)

    return Told()


def test_what_is_pending() -> None:
    (metrics,) = source_metrics(told())
    assert metrics.partitions == (PartitionMetrics(A, 10, 15, 4), PartitionMetrics(B, 20, 20, None))
    assert metrics.pending_offsets == 5
    assert (metrics.records, metrics.records_per_second) == (7, 3.5)
    assert (metrics.commits_succeeded, metrics.commits_failed) == (3, 1)
    assert metrics.watermark_lag_ms is None


@pytest.mark.parametrize(("name", "field"), [("watermark", "watermark_lag_ms"), ("max", "event_time_lag_ms")])
def test_event_time(name: str, field: str) -> None:
    (metrics,) = source_metrics(told(eventTime={name: "2026-01-01T00:00:07.500Z"}))
    assert getattr(metrics, field) == 2_500


def test_bytes_and_idle_time() -> None:
    (metrics,) = source_metrics(told(durationMs={"triggerExecution": 250}))
    assert (metrics.estimated_bytes, metrics.estimated_bytes_per_second, metrics.idle_ms) == (1_000, 4_000.0, 70)
    (metrics,) = source_metrics(told())
    assert metrics.estimated_bytes_per_second is None
