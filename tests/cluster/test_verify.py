"""Planted errors in the output are found, each as what it is, among many rows that are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkonce import KafkaSink, KafkaSource
from sparkonce.devbroker import DevBroker
from sparkonce.spark.verify import Verdict, verify
from tests.conftest import TopicFactory

COUNT = 1_000_000
PARTITIONS = 3
ID = "get_json_object(string(value), '$.id')"


def orders(spark: SparkSession, count: int = COUNT) -> DataFrame:
    value = """concat('{"id":', id, ',"amount":', id % 997, '}')"""
    return spark.range(0, count, 1, 2).selectExpr(
        "id", "CAST(id % 101 AS STRING) AS key", f"{value} AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition"
    )


def written(spark: SparkSession, broker: DevBroker, topic: str, rows: DataFrame) -> DataFrame:
    KafkaSink(broker.bootstrap_servers, topic=topic, transactional_id=topic).write(rows)
    return KafkaSource(broker.bootstrap_servers, topics=topic, start="earliest").read(spark)


@pytest.fixture
def source(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> DataFrame:
    """The input, read back from Kafka: what a query would have been given."""
    name = topic(broker, partitions=PARTITIONS)
    return written(spark, broker, name, orders(spark).drop("id")).select("key", "value")


def test_planted_errors(spark: SparkSession, broker: DevBroker, topic: TopicFactory, source: DataFrame) -> None:
    """One missing, one doubled, one that was never there, one altered, two swapped, among many."""
    swapped, other = 5 * PARTITIONS * 101, 6 * PARTITIONS * 101
    place = f"CASE id WHEN {swapped} THEN {other} WHEN {other} THEN {swapped} ELSE id END"
    output = (
        orders(spark)
        .where("id <> 777")
        .unionByName(orders(spark).where("id = 888"))
        .unionByName(orders(spark, COUNT + 1).where(f"id = {COUNT}"))
        .selectExpr("*", f"{place} AS place")
        .repartition(1)
        .sortWithinPartitions("place")
        .selectExpr("key", """IF(id = 999, '{"id":999,"amount":0.5}', value) AS value""", "partition")
    )
    found = written(spark, broker, topic(broker, partitions=PARTITIONS), output)
    verdict = verify(source, found, ID)
    assert verdict == Verdict(
        expected=COUNT,
        found=COUNT + 1,
        missing=1,
        doubled=1,
        unexpected=1,
        altered=1,
        out_of_order=1,
        examples={"missing": ("777",), "doubled": ("888",), "unexpected": (str(COUNT),), "altered": ("999",)},
    )
    assert not verdict.is_right


def test_whole_records_and_no_errors(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    rows = orders(spark, 5_000).drop("id")
    name = topic(broker, partitions=PARTITIONS)
    source = written(spark, broker, name, rows).select("key", "value")
    found = written(spark, broker, topic(broker, partitions=PARTITIONS), rows)
    assert verify(source, found).is_right
    lost = verify(source, found.where("partition <> 1 OR offset <> 0"))
    assert (lost.missing, lost.unexpected) == (1, 0)
    assert lost.examples == {"missing": ('1 {"id":1,"amount":1}',)}
    # A query with a shuffle has no order that could be kept.
    assert verify(source.distinct(), found).out_of_order is None


def test_values_that_are_null(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(None, b"x"), (b"k", None), (None, None)], "key BINARY, value BINARY")
    found = written(spark, broker, topic(broker), rows)
    assert verify(rows.coalesce(1), found).is_right
    assert verify(rows.coalesce(1), found.where("offset <> 2")).examples == {"missing": ("null null",)}
