"""Streams with a stop end by themselves with any trigger, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.spark import source_ending
from sparkonce.spark.source import register
from sparkonce.spark.source_builder import KafkaSource
from tests.broker.fetch_samples import BASE_MS, producer_of, send
from tests.conftest import TopicFactory

END_SECONDS = 90
HOUR_MS = 3_600_000


@pytest.fixture
def often_told(spark: SparkSession) -> SparkSession:
    """Queries that say soon that they have nothing to do; the setting is read when a query starts."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "500")
    return spark


def start(rows: DataFrame, checkpoint: Path, name: str, mode: str = "append") -> StreamingQuery:
    writer = rows.writeStream.format("memory").queryName(name).outputMode(mode)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="200 milliseconds").start()


def test_a_stream_with_a_stop_ends_also_when_started_again(
    often_told: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"x"] * 50)
    source = KafkaSource(
        broker.bootstrap_servers,
        topics=name,
        start="earliest",
        stop={TopicPartition(name, 0): 70},
        max_offsets_per_trigger=20,
    )
    query = source.stream(often_told).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    running = query.trigger(processingTime="200 milliseconds").start()
    assert not running.awaitTermination(10)
    send(producer_of(broker), name, [b"y"] * 50)
    assert running.awaitTermination(END_SECONDS)
    assert sum(progress["numInputRows"] for progress in running.recentProgress) == 70
    again = query.trigger(processingTime="200 milliseconds").start()
    assert again.awaitTermination(END_SECONDS)
    assert sum(progress["numInputRows"] for progress in again.recentProgress) == 0


def test_windows_are_closed_before_the_end(
    often_told: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker)
    for hour in (0, 1, 5):
        send(producer_of(broker), name, [b"x"], first_ms=BASE_MS + hour * HOUR_MS)
    source = KafkaSource(broker.bootstrap_servers, topics=name, start="earliest", stop="latest")
    hours = source.stream(often_told).withWatermark("timestamp", "1 hour").groupBy(f.window("timestamp", "1 hour"))
    query = start(hours.count(), tmp_path, "hours")
    assert query.awaitTermination(END_SECONDS)
    # The watermark that the last record moves is used by an empty micro-batch after it.
    assert often_told.table("hours").count() == 2


def test_a_query_with_another_source_goes_on(
    often_told: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"x"] * 5)

    def source(**options: Any) -> DataFrame:
        return KafkaSource(broker.bootstrap_servers, topics=name, start="earliest", **options).stream(often_told)

    (tmp_path / "in").mkdir()
    files = often_told.readStream.text(str(tmp_path / "in"))
    mixed = source(stop="latest").selectExpr("CAST(value AS STRING) AS value").union(files)
    endless = start(source(), tmp_path / "endless", "endless")
    query = start(mixed, tmp_path / "mixed", "mixed")
    twice = start(source(stop="latest").union(source(stop="latest")), tmp_path / "twice", "twice")
    try:
        # The query of two of ours is the measure of time: when it has ended, the others would have, too.
        assert twice.awaitTermination(END_SECONDS)
        assert not query.awaitTermination(5)
        assert endless.isActive
        assert often_told.table("mixed").count() == 5
        assert often_told.table("twice").count() == 10
    finally:
        query.stop()
        endless.stop()


def test_the_listener_is_added_once(often_told: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[object] = []
    monkeypatch.setattr(source_ending, "_sessions", set())
    monkeypatch.setattr("pyspark.sql.streaming.query.StreamingQueryManager.addListener", lambda _, it: added.append(it))
    register(often_told)
    register(often_told)
    assert len(added) == 1
