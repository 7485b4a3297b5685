"""Bounded reads in Spark have, row for row and field for field, what librdkafka reads from the same topics."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from tests.broker.fetch_samples import (
    Row,
    end,
    log_end,
    producer_of,
    rows_by_librdkafka,
    send,
    send_transactions,
    wait_for_markers,
)
from tests.broker.test_fetch_failures import write_keyed
from tests.broker.wire_samples import client_of
from tests.cluster.test_source_spark import options_of, rows_of_spark
from tests.conftest import TopicFactory

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTION_SECONDS = 120
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "200",
}


def rows_by_spark(spark: SparkSession, broker: DevBroker, topic: str, **more: str) -> list[Row]:
    options = options_of(broker, topic, includeHeaders="true", **more)
    return rows_of_spark(spark.read.format("sparkonce").options(**options).load())


def test_plain_records_of_all_codecs(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        source = random.Random(partition)
        # Null and empty values, null keys, headers with and without values, sizes up to several kilobytes.
        values = [None if n % 11 == 0 else source.randbytes(n % 97) + b"text " * (n % 800) for n in range(1_500)]
        producer = producer_of(broker, **{"compression.type": codec, "batch.num.messages": 200})
        send(producer, name, values, partition)
    expected = rows_by_librdkafka(broker, name, partitions=len(CODECS))
    assert len(expected) == 1_500 * len(CODECS)
    assert rows_by_spark(spark, broker, name) == expected
    assert rows_by_spark(spark, broker, name, minPartitions="11") == expected
    assert rows_by_spark(spark, broker, name, maxPartitions="2") == expected


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_with_aborts(isolation: str, spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, partitions=2)
    send_transactions(broker, name, [True, False, False, True, False], partitions=2, each=50)
    with client_of(broker) as client:
        for partition in (0, 1):
            wait_for_markers(client, TopicPartition(name, partition))
    expected = rows_by_librdkafka(broker, name, partitions=2, isolation=isolation)
    aborted = [row for row in expected if row.value and b"False" in row.value]
    assert bool(aborted) == (isolation == "read_uncommitted")
    assert rows_by_spark(spark, broker, name, **{"kafka.isolation.level": isolation}) == expected


def compacted_topic(broker: DevBroker, topic: TopicFactory) -> str:
    """A topic from which the cleaner has taken most of its records, and aborted transactions between them."""
    name = topic(broker, config=COMPACTED)
    producer = producer_of(broker, **{"batch.num.messages": 20, "compression.type": "lz4"})
    transactional = producer_of(broker, **{"transactional.id": name, "batch.num.messages": 20})
    transactional.init_transactions(COMPACTION_SECONDS)
    for commit in (True, False, True):
        write_keyed(producer, name, 1_000)
        transactional.begin_transaction()
        write_keyed(transactional, name, 100)
        end(transactional, commit=commit)

    def compacted() -> bool:
        # Segments are only rolled when something is written.
        producer.produce(name, b"end", b"the end")
        producer.flush(30)
        return len(rows_by_librdkafka(broker, name)) < 1_000

    assert wait_until(compacted, Deadline.after(COMPACTION_SECONDS))
    return name


def test_compacted_topics(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = compacted_topic(broker, topic)

    def equal() -> bool:
        """The cleaner may run between the readers: two equal readings of librdkafka frame ours."""
        before = rows_by_librdkafka(broker, name)
        ours = rows_by_spark(spark, broker, name)
        after = rows_by_librdkafka(broker, name)
        assert before != after or ours == after
        return before == after

    assert wait_until(equal, Deadline.after(COMPACTION_SECONDS))
    with client_of(broker) as client:
        assert log_end(client, TopicPartition(name, 0)) > 3_000 > 2 * len(rows_by_librdkafka(broker, name))


def test_records_of_ten_megabytes(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, config={"max.message.bytes": "12000000"})
    values = [random.Random(n).randbytes(10_000_000) if n % 3 else b"small" for n in range(6)]
    send(producer_of(broker, **{"message.max.bytes": 12_000_000}), name, values)
    expected = rows_by_librdkafka(broker, name)
    assert [len(row.value or b"") for row in expected] == [len(value) for value in values]
    assert rows_by_spark(spark, broker, name) == expected
    append_time = topic(broker, config={"message.timestamp.type": "LogAppendTime"})
    send(producer_of(broker), append_time, [b"x"] * 10)
    rows = rows_by_spark(spark, broker, append_time)
    assert {row.timestamp_type for row in rows} == {1}
    assert rows == rows_by_librdkafka(broker, append_time)
