"""A topic with five hundred partitions, read at once and as a stream."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkonce.devbroker import DevBroker
from sparkonce.spark.source_builder import KafkaSource
from tests.broker.fetch_samples import WAIT_SECONDS, producer_of
from tests.conftest import TopicFactory

PARTITIONS = 500
EACH = 20
SECONDS = 300
"""Spark alone needs 15 s on two busy cores for five hundred tasks that do nothing."""


@pytest.fixture
def wide(broker: DevBroker, topic: TopicFactory) -> str:
    name = topic(broker, partitions=PARTITIONS)
    write(broker, name)
    return name


def write(broker: DevBroker, topic: str) -> None:
    producer = producer_of(broker)
    for number in range(PARTITIONS * EACH):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def places(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())


def test_five_hundred_partitions(spark: SparkSession, broker: DevBroker, wide: str, tmp_path: Path) -> None:
    began = time.monotonic()
    source = KafkaSource(broker.bootstrap_servers, topics=wide, start="earliest")
    expected = [(partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)]
    assert places(source.read(spark)) == expected
    read = time.monotonic()
    found: list[tuple[int, int]] = []
    writer = source.stream(spark).writeStream.foreachBatch(lambda rows, _: found.extend(places(rows)))
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    streamed = time.monotonic()
    assert sorted(found) == expected
    assert streamed - began < SECONDS, f"bounded {read - began:.0f} s, stream {streamed - read:.0f} s"
