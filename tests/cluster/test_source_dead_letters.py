"""Malformed records in a topic of their own, in the same transaction as the good ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from demo.judge import count_transactions
from pyspark.sql import DataFrame, SparkSession

from sparkonce import KafkaSink, KafkaSource
from sparkonce.devbroker import DevBroker
from sparkonce.errors import UsageError
from tests.broker.fetch_samples import producer_of, rows_by_librdkafka, send
from tests.conftest import TopicFactory

COUNT = 90


def value_of(number: int) -> bytes:
    return b'{"id": "%d"}' % number if number % 3 == 0 else b'{"id": %d}' % number


def to_sink(rows: DataFrame) -> DataFrame:
    """A text for the value and no headers, unlike the dead letters."""
    return rows.selectExpr("key", "to_json(value) AS value")


def test_good_and_bad_in_one_transaction(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name, good, bad = topic(broker, partitions=2), topic(broker), topic(broker)
    for partition in (0, 1):
        send(producer_of(broker), name, [value_of(number) for number in range(COUNT)], partition)
    source = KafkaSource(
        broker.bootstrap_servers,
        topics=name,
        start="earliest",
        value_format="json",
        value_schema="id BIGINT",
        on_malformed="dead-letter",
        dead_letter_topic=bad,
        max_offsets_per_trigger=COUNT,
    )
    sink = KafkaSink(broker.bootstrap_servers, topic=good, transactional_id=good)
    query = sink.start(source.stream(spark, transform=to_sink), str(tmp_path), trigger="available-now")
    query.awaitTermination()
    sink.close()
    micro_batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert len(micro_batches) == 2

    ids = sorted(json.loads(row.value or b"")["id"] for row in rows_by_librdkafka(broker, good))
    assert ids == sorted([number for number in range(COUNT) if number % 3] * 2)
    sent = {(row.partition, row.offset): row for row in rows_by_librdkafka(broker, name, partitions=2)}
    letters = rows_by_librdkafka(broker, bad)
    found: dict[tuple[int, int], Any] = {}
    for letter in letters:
        *original, error, from_topic, from_partition, from_offset = letter.headers
        place = (int(from_partition[1] or b""), int(from_offset[1] or b""))
        found[place] = letter
        assert (letter.key, letter.value, tuple(original)) == (sent[place].key, sent[place].value, sent[place].headers)
        text = f"the value of {name}-{place[0]} at offset {place[1]} is not JSON of its schema"
        assert error == ("sparkonce.error", text.encode())
        assert from_topic == ("sparkonce.topic", name.encode())
        assert (from_partition[0], from_offset[0]) == ("sparkonce.partition", "sparkonce.offset")
    assert len(found) == len(letters)
    assert found.keys() == {(p, number) for p in (0, 1) for number in range(0, COUNT, 3)}
    # One transaction a micro-batch, over both topics: each has a marker of each.
    for written in (good, bad):
        assert count_transactions(broker.bootstrap_servers, written, 1) == (2, 0)


def test_headers_that_were_asked_for(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"text", b"\xff"])
    source = KafkaSource(
        broker.bootstrap_servers,
        topics=name,
        start="earliest",
        value_format="string",
        on_malformed="dead-letter",
        dead_letter_topic="bad",
        include_headers=True,
    )
    rows = source.read(spark, transform=lambda good: good.select("value", "headers", "partition")).collect()
    assert [(row["topic"], row["value"], row["partition"]) for row in rows] == [
        (None, b"text", 0),
        ("bad", b"\xff", None),
    ]
    assert [header["key"] for header in rows[0]["headers"]] == ["a", "b"]


def test_wrong_uses(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="dead_letter_topic goes with on_malformed='dead-letter'"):
        KafkaSource("here", topics="t", on_malformed="dead-letter")
    with pytest.raises(UsageError, match="dead_letter_topic goes with on_malformed='dead-letter'"):
        KafkaSource("here", topics="t", dead_letter_topic="bad")
    with pytest.raises(UsageError, match="beside a function, json cannot be the other format"):
        KafkaSource(
            "here",
            topics="t",
            on_malformed="dead-letter",
            dead_letter_topic="bad",
            key_format=lambda key: key,
            value_format="json",
            value_schema="id BIGINT",
        )
    letters = KafkaSource("here", topics="t", on_malformed="dead-letter", dead_letter_topic="bad")
    with pytest.raises(UsageError, match="dead letters and a transform go together"):
        letters.stream(spark)
    with pytest.raises(UsageError, match="dead letters and a transform go together"):
        KafkaSource("here", topics="t").stream(spark, transform=to_sink)
    with pytest.raises(UsageError, match="must give the sink's columns, at least 'value'"):
        letters.stream(spark, transform=lambda rows: rows.select("key"))
