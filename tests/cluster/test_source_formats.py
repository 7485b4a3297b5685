"""Formats as options of the source and in `KafkaSource`, in Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import PySparkException  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DateType, IntegerType, StringType, StructField, StructType, TimestampType

from sparkonce.devbroker import DevBroker
from sparkonce.spark.source_builder import KafkaSource
from tests.broker.fetch_samples import producer_of, send
from tests.conftest import TopicFactory

GOOD = b'{"id": 1, "name": "one", "tags": ["a", null], "at": "2024-01-02T03:04:05Z", "price": 1.5, "more": {}}'
VALUES = [GOOD, None, b"\xff\xfe", b"{broken", b'{"id": "x"}', b'{\n"id": 2\n}']
SCHEMA = "id BIGINT, name STRING, tags ARRAY<STRING>, at TIMESTAMP, price DECIMAL(10, 2)"


@pytest.fixture
def sample(broker: DevBroker, topic: TopicFactory) -> str:
    name = topic(broker)
    send(producer_of(broker), name, VALUES)
    return name


def load(spark: SparkSession, broker: DevBroker, topic: str, **options: str) -> DataFrame:
    place = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("sparkonce").options(**place, **options).load().orderBy("offset")


def test_json_as_text_options(spark: SparkSession, broker: DevBroker, sample: str) -> None:
    rows = load(spark, broker, sample, valueFormat="json", valueSchema=SCHEMA, keyFormat="string", onMalformed="null")
    assert rows.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,name:string,tags:array<string>,at:timestamp,price:decimal(10,2)>"
    )
    found = rows.withColumn("at", f.unix_millis("value.at")).collect()
    first = found[0]["value"]
    assert (first["id"], first["name"], first["tags"], str(first["price"])) == (1, "one", ["a", None], "1.50")
    assert found[0]["at"] == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000
    assert [row["value"] and row["value"]["id"] for row in found] == [1, None, None, None, None, 2]
    assert [row["key"] for row in found] == ["k0", "k1", "k2", "k3", None, "k5"]
    assert [row["_error"] for row in found] == [None, None] + [
        f"the value of {sample}-0 at offset {offset} is not JSON of its schema" for offset in (2, 3, 4)
    ] + [None]
    with pytest.raises(PySparkException, match=f"the value of {sample}-0 at offset 2 is not UTF-8 text"):
        load(spark, broker, sample, valueFormat="string").collect()
    with pytest.raises(PySparkException, match="write 'id' without NOT NULL"):
        load(spark, broker, sample, valueFormat="json", valueSchema="id BIGINT NOT NULL").collect()


def test_raw_bytes_of_malformed_records(spark: SparkSession, broker: DevBroker, sample: str) -> None:
    found = load(spark, broker, sample, valueFormat="json", valueSchema=SCHEMA, onMalformed="raw").collect()
    assert [row["_value"] for row in found] == [None, None, *VALUES[2:5], None]
    assert [row["_key"] for row in found] == [None, None, b"k2", b"k3", None, None]


def test_a_stream_of_json(spark: SparkSession, broker: DevBroker, sample: str, tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("id", IntegerType()),
            StructField("a name, with `ticks`", StringType()),
            StructField("days", ArrayType(StructType([StructField("day", DateType())]))),
            StructField("at", TimestampType()),
        ]
    )
    send(producer_of(broker), sample, [b'{"a name, with `ticks`": "x", "days": [{"day": "2024-02-29"}]}'])
    source = KafkaSource(
        broker.bootstrap_servers,
        topics=sample,
        start="earliest",
        value_format="json",
        value_schema=schema,
        key_format="string",
        on_malformed="null",
    )
    writer = source.stream(spark).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None, None, None, None, 2, None]
    assert rows[6]["value"]["a name, with `ticks`"] == "x"
    assert rows[6]["value"]["days"][0]["day"] == date(2024, 2, 29)


def test_functions_of_the_users_own(spark: SparkSession, broker: DevBroker, sample: str) -> None:
    def read(**options: Any) -> DataFrame:
        source = KafkaSource(broker.bootstrap_servers, topics=sample, start="earliest", key_format="string", **options)
        return source.read(spark).orderBy("offset")

    def short(value: Any) -> Any:
        return f.when(f.octet_length(value) < 20, f.octet_length(value))

    rows = read(value_format=short, on_malformed="raw").collect()
    assert [row["value"] for row in rows] == [None, None, 2, 7, 11, 11]
    problem = f"the value of {sample}-0 at offset 0 is not what its function expects"
    assert [row["_error"] for row in rows] == [problem, None, None, None, None, None]
    assert [(row["_key"], row["_value"]) for row in rows] == [(b"k0", GOOD)] + [(None, None)] * 5
    with pytest.raises(PySparkException, match=problem):
        read(value_format=short).collect()
