"""The source in Spark: the rows of librdkafka, in bounded reads and in streams that are stopped and started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.captured import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.devbroker import DevBroker
from sparkonce.spark.source import register
from tests.broker.fetch_samples import Row, producer_of, rows_by_librdkafka, send, send_transactions
from tests.conftest import TopicFactory


def options_of(broker: DevBroker, topic: str, **more: Any) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **more}


def rows_of_spark(rows: DataFrame) -> list[Row]:
    """What Spark has, in the order of partition and offset."""
    table: pa.Table = rows.selectExpr("*", "unix_millis(timestamp) AS timestamp_ms").drop("timestamp").toArrow()
    return sorted(
        Row(
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            row["timestamp_ms"],
            row["timestampType"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in table.to_pylist()
    )


def run(rows: DataFrame, output: Path, checkpoint: Path) -> StreamingQuery:
    """Everything that there is, into files."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(output))
    query.awaitTermination()
    return query


def test_a_bounded_read_has_the_rows_of_librdkafka(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, partitions=2)
    send_transactions(broker, name, [True, False, True], partitions=2, each=200)
    send(producer_of(broker, **{"compression.type": "zstd"}), name, [None, b"", b"x" * 100_000] * 50, partition=1)
    # Without registration: Spark finds the module `pyspark_sparkonce`.
    rows = spark.read.format("sparkonce").options(**options_of(broker, name, includeHeaders="true")).load()
    expected = rows_by_librdkafka(broker, name, partitions=2)
    assert rows_of_spark(rows) == expected
    split = spark.read.format("sparkonce").options(**options_of(broker, name, includeHeaders="true", minPartitions=9))
    assert split.load().rdd.getNumPartitions() == 9
    assert rows_of_spark(split.load()) == expected
    merged = spark.read.format("sparkonce").options(**options_of(broker, name, includeHeaders="true", maxPartitions=1))
    assert merged.load().rdd.getNumPartitions() == 1
    assert rows_of_spark(merged.load()) == expected


def test_a_stream_in_several_batches_and_runs(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    register(spark)
    name = topic(broker, partitions=2)
    send(producer_of(broker), name, [b"first"] * 100)
    options = options_of(broker, name, startingOffsets="earliest", maxOffsetsPerTrigger="40", includeHeaders="true")
    stream = spark.readStream.format("sparkonce").options(**options).load()
    query = run(stream, tmp_path / "out", tmp_path / "checkpoint")
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [40, 40, 20]
    send(producer_of(broker), name, [b"second"] * 50, partition=1)
    query = run(stream, tmp_path / "out", tmp_path / "checkpoint")
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 50
    assert rows_of_spark(spark.read.parquet(str(tmp_path / "out"))) == rows_by_librdkafka(broker, name, partitions=2)
    logged = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[2])
    assert logged["start"] == {name: {"0": 0, "1": 0}}


def test_a_start_at_latest_is_frozen_before_anything_is_read(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker)
    send(producer_of(broker), name, [b"before"] * 10)
    stream = spark.readStream.format("sparkonce").options(**options_of(broker, name, includeHeaders="true")).load()
    run(stream, tmp_path / "out", tmp_path / "checkpoint")
    # As if the driver had been killed after the first plan was logged, before its batch was done.
    for committed in (tmp_path / "checkpoint" / "commits").iterdir():
        committed.unlink()
    send(producer_of(broker), name, [b"between"] * 5)
    run(stream, tmp_path / "out", tmp_path / "checkpoint")
    assert [row.value for row in rows_of_spark(spark.read.parquet(str(tmp_path / "out")))] == [b"between"] * 5


def test_errors_are_readable_and_come_at_once(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    options = options_of(broker, topic(broker))
    with pytest.raises(
        AnalysisException, match="unknown source option 'startingoffset'; did you mean 'startingOffsets'"
    ):
        spark.read.format("sparkonce").options(**options, startingOffset="earliest").load()
    missing = spark.readStream.format("sparkonce").options(**{**options, "subscribe": "no-such-topic"}).load()
    with pytest.raises(StreamingQueryException, match="no-such-topic"):
        run(missing, tmp_path / "out", tmp_path / "checkpoint")
