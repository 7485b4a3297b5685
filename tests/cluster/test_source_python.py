"""`KafkaSource`: starts, formats, malformed values, group offsets and metrics, in Spark."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import PySparkException  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession

from sparkonce.devbroker import DevBroker
from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark.source_builder import KafkaSource
from sparkonce.spark.source_figures import source_metrics
from sparkonce.wire import committed_offsets
from tests.broker.fetch_samples import BASE_MS, producer_of, send
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row.offset for row in rows.select("offset").collect())


def test_where_to_start_and_stop(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"x"] * 20)
    partition = TopicPartition(name, 0)

    def read(**options: Any) -> list[int]:
        return offsets(KafkaSource(broker.bootstrap_servers, topics=[name], **options).read(spark))

    assert read(start="earliest") == list(range(20))
    assert read(start={partition: 5}, stop={partition: 9}) == [5, 6, 7, 8]
    assert read(start=datetime.fromtimestamp((BASE_MS + 15) / 1000, UTC)) == list(range(15, 20))
    assert read(start=lambda partitions: dict.fromkeys(partitions, 17)) == [17, 18, 19]
    assert offsets(KafkaSource(broker.bootstrap_servers, partitions=[partition], start="earliest").read(spark))


def test_formats(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b'{"id": 1, "name": "one"}', None, b"\xff\xfe", b"{broken", b'{"id": "x"}'])

    def read(**options: Any) -> DataFrame:
        source = KafkaSource(broker.bootstrap_servers, topics=name, start="earliest", **options)
        return source.read(spark).orderBy("offset")

    text = read(value_format="string", key_format="string", on_malformed="null").collect()
    assert [row["value"] for row in text] == ['{"id": 1, "name": "one"}', None, None, "{broken", '{"id": "x"}']
    assert [row["key"] for row in text] == ["k0", "k1", "k2", "k3", None]
    problem = f"the value of {name}-0 at offset"
    assert [row["_error"] for row in text] == [None, None, f"{problem} 2 is not UTF-8 text", None, None]
    parsed = read(value_format="json", value_schema="id BIGINT, name STRING", on_malformed="null").collect()
    assert [row["value"] and row["value"].asDict() for row in parsed] == [{"id": 1, "name": "one"}] + [None] * 4
    assert [row["_error"] for row in parsed] == [None, None] + [
        f"{problem} {n} is not JSON of its schema" for n in (2, 3, 4)
    ]
    with pytest.raises(PySparkException, match=f"{problem} 2 is not UTF-8 text"):
        read(value_format="string").collect()
    lengths = read(value_format=lambda value: value.substr(1, 1).cast("string")).collect()
    assert lengths[0]["value"] == "{"


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="did you mean 'maxOffsetsPerTrigger'"):
        KafkaSource("here", topics="t", max_offset_per_trigger=5)
    with pytest.raises(UsageError, match="valueSchema goes with valueFormat=json"):
        KafkaSource("here", topics="t", value_format="json")
    with pytest.raises(UsageError, match="valueFormat must be one of binary, string, json"):
        KafkaSource("here", topics="t", value_format="xml")
    with pytest.raises(UsageError, match="has no time zone"):
        KafkaSource("here", topics="t", start=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="not subscribe and subscribePattern together"):
        KafkaSource("here", topics="t", pattern="t")


def test_a_stream_with_a_group_and_metrics(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name, group = topic(broker), f"group-{uuid.uuid4()}"
    send(producer_of(broker), name, [b"x"] * 20)
    options: dict[str, Any] = {
        "kafka.group.id": group,
        "commit_offsets_on_checkpoint": True,
        "max_offsets_per_trigger": 15,
    }
    source = KafkaSource(broker.bootstrap_servers, topics=name, start="earliest", **options)
    writer = source.stream(spark).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    # Also what the last micro-batch read, although Spark never says that it is committed.
    with client_of(broker) as client:
        found = committed_offsets(client, group, [TopicPartition(name, 0)])
    assert {str(partition): value.offset for partition, value in found.items()} == {f"{name}-0": 20}
    first, second = (source_metrics(progress)[0] for progress in query.recentProgress[:2])
    assert (first.records, first.pending_offsets) == (15, 5)
    assert first.partitions[0].committed_offset is None
    assert second.partitions[0].committed_offset == 15
    # A value of one byte, a key of two, and every third record with headers.
    assert first.estimated_bytes is not None
    assert 15 * 8 < first.estimated_bytes < 15 * 25
    assert first.estimated_bytes_per_second is not None
    assert second.idle_ms == 0
