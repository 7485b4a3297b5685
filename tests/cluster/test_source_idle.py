"""How long a source had nothing to read."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.spark.source_builder import KafkaSource
from sparkonce.spark.source_figures import source_idle_ms, source_metrics
from tests.broker.fetch_samples import producer_of, send
from tests.conftest import TopicFactory

WAIT_SECONDS = 180
IDLE_MS = 1_500


def test_idle_time_while_and_after(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(broker)
    # Spark then tells more often than that, while it waits, that there is nothing.
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "500")
    send(producer_of(broker), name, [b"x"] * 10)
    source = KafkaSource(broker.bootstrap_servers, topics=name, start="earliest")
    writer = source.stream(spark).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        until = Deadline.after(WAIT_SECONDS)
        assert wait_until(lambda: (source_idle_ms(query) or 0) > IDLE_MS, until)
        send(producer_of(broker), name, [b"y"] * 10)
        assert wait_until(lambda: len(_with_rows(query)) >= 2, until)
        first, second = (source_metrics(progress)[0] for progress in _with_rows(query)[:2])
        assert first.idle_ms == 0
        assert second.idle_ms > IDLE_MS - 500
        assert (source_idle_ms(query) or 0) < second.idle_ms
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def _with_rows(query: StreamingQuery) -> list[StreamingQueryProgress]:
    return [progress for progress in query.recentProgress if progress["numInputRows"]]
