"""The sink in Spark: what it writes, read back by librdkafka, and what it refuses. One session for all of it."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from demo.judge import count_transactions
from pyspark.errors.exceptions.captured import IllegalArgumentException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce import KafkaSink, KafkaSource
from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.errors import RetriableError, UsageError
from sparkonce.spark import one_stage
from sparkonce.spark.one_stage import can_run_together
from tests.broker.fetch_samples import Row, producer_of, rows_by_librdkafka, send
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory

PARTITIONS = 3
GUARANTEES = ("exactly-once", "at-least-once", "none")
WAYS = pytest.mark.parametrize("spark_partitions", [2, 4], ids=["one-stage", "shuffled"])
"""The session has two cores."""


def sink_of(broker: DevBroker, topic: str | None, guarantee: str = "exactly-once", **more: Any) -> KafkaSink:
    name = {"transactional_id": f"id-{topic}"} if guarantee == "exactly-once" else {}
    return KafkaSink(broker.bootstrap_servers, topic=topic, guarantee=guarantee, **{**name, **more})


def numbered(spark: SparkSession, count: int, partitions: int = 4) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_every_column_arrives(guarantee: str, spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, partitions=PARTITIONS)
    when = datetime(2024, 5, 1, 12, 30, 0, 123_000, tzinfo=UTC)
    given = [
        (b"k", b"v", 2, when, [("a", b"1"), ("a", None)]),
        (None, None, 0, when, None),
        (b"", b"", 1, when, []),
    ]
    headers = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    schema = f"key BINARY, value BINARY, partition INT, timestamp TIMESTAMP, {headers}"
    receipt = sink_of(broker, name, guarantee).write(spark.createDataFrame(given, schema))
    assert (receipt.records, receipt.lost_records, receipt.attempts) == (3, 0, 1)
    at = int(when.timestamp() * 1000)
    assert rows_by_librdkafka(broker, name, PARTITIONS) == [
        Row(0, 0, None, None, at, 0, ()),
        Row(1, 0, b"", b"", at, 0, ()),
        Row(2, 0, b"k", b"v", at, 0, (("a", b"1"), ("a", None))),
    ]


@pytest.mark.parametrize(
    ("guarantee", "more"),
    [(GUARANTEES[1], {}), (GUARANTEES[2], {}), (GUARANTEES[2], {"acks": 0})],
    ids=[*GUARANTEES[1:], "none-without-acks"],
)
def test_all_rows_arrive(
    guarantee: str, more: dict[str, Any], spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    name, count = topic(broker, partitions=PARTITIONS), 30_000
    receipt = sink_of(broker, name, guarantee, batch_bytes=2_000, **more).write(numbered(spark, count))
    assert receipt.records == count
    assert sorted(int(value) for value in values_in(broker, name, PARTITIONS)) == list(range(count))


@pytest.mark.parametrize(
    ("spark_partitions", "more", "way"),
    [(2, {}, "is sent in one stage"), (1, {}, "is sent in one stage"), (4, {}, ""), (2, {"one_stage": False}, "")],
)
def test_all_rows_arrive_once_in_the_order_of_the_whole(
    spark_partitions: int,
    more: dict[str, Any],
    way: str,
    spark: SparkSession,
    broker: DevBroker,
    topic: TopicFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether the tasks send in turns, or one task sends what all have encoded for its topic partitions."""
    caplog.set_level(logging.INFO, "sparkonce")
    name, count = topic(broker, partitions=PARTITIONS), 30_000
    receipt = sink_of(broker, name, batch_bytes=2_000, **more).write(numbered(spark, count, spark_partitions))
    assert (receipt.records, receipt.attempts) == (count, 1)
    assert way in caplog.text
    assert ("in one stage" in caplog.text) is bool(way)
    values = [int(value) for value in values_in(broker, name, PARTITIONS)]
    assert sorted(values) == list(range(count))
    of_key = [value for value in values if value % 7 == 3]
    assert of_key == sorted(of_key)
    assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (1, 0)


def test_a_plan_whose_tasks_spark_does_not_run_together(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparkonce")
    name = topic(broker, partitions=PARTITIONS)
    receipt = sink_of(broker, name).write(numbered(spark, 2_000, 4).coalesce(2))
    assert (receipt.records, receipt.attempts) == (2_000, 1)
    assert "from now on batches are shuffled" in caplog.text
    assert sorted(int(value) for value in values_in(broker, name, PARTITIONS)) == list(range(2_000))


TOGETHER: dict[str, tuple[Callable[[SparkSession], DataFrame], bool]] = {
    "as many as cores": (lambda spark: numbered(spark, 10, 2), True),
    "none": (lambda spark: spark.createDataFrame([], "value STRING"), True),
    "more than cores": (lambda spark: numbered(spark, 10, 3), False),
    "changed while it runs": (lambda spark: numbered(spark, 10).repartition(2), False),
}


@pytest.mark.parametrize("partitions", TOGETHER)
def test_when_tasks_run_together(partitions: str, spark: SparkSession) -> None:
    rows, expected = TOGETHER[partitions]
    assert can_run_together(rows(spark)) is expected


def test_not_too_many_tasks_send_in_turns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_stage, "TASKS_MAX", 1)
    assert not can_run_together(numbered(spark, 10, 2))


@WAYS
def test_rows_choose_their_topics_in_one_transaction(
    spark_partitions: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    first, second = topic(broker), topic(broker, partitions=2)
    rows = numbered(spark, 1_000, spark_partitions).selectExpr("*", f"IF(value % 4 = 0, '{second}', NULL) AS topic")
    sink_of(broker, first).write(rows)
    assert len(values_in(broker, first, 1)) == 750
    assert len(values_in(broker, second, 2)) == 250
    assert count_transactions(broker.bootstrap_servers, first, 1) == (1, 0)
    assert count_transactions(broker.bootstrap_servers, second, 2) == (1, 0)


def test_a_partitioner_of_the_users_own(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker, partitions=PARTITIONS)

    def last_but(rows: pa.RecordBatch, count: int) -> pa.Array:
        return pa.array([count - 1] * rows.num_rows, pa.int32())

    sink_of(broker, name, partitioner=last_but).write(numbered(spark, 100))
    assert {row.partition for row in rows_by_librdkafka(broker, name, PARTITIONS)} == {PARTITIONS - 1}


@WAYS
def test_an_error_of_the_users_own_is_shown_as_it_is(
    spark_partitions: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    name = topic(broker, partitions=PARTITIONS)

    def unwilling(rows: pa.RecordBatch, _: int) -> pa.Array:
        raise ValueError(f"not these {rows.num_rows} rows")

    with pytest.raises(PythonException, match=r"ValueError: not these (25|50) rows"):
        sink_of(broker, name, partitioner=unwilling).write(numbered(spark, 100, spark_partitions))
    assert values_in(broker, name, PARTITIONS) == []


@WAYS
def test_a_mistake_that_a_task_finds(
    spark_partitions: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    name = topic(broker)
    rows = numbered(spark, 100, spark_partitions).selectExpr("*", "IF(value = 99, NULL, 0) AS partition")
    with pytest.raises(UsageError, match="null in the column 'partition'"):
        sink_of(broker, name, partitioner="fixed").write(rows)
    assert values_in(broker, name, 1) == []


@pytest.mark.parametrize("spark_partitions", [2, 4, 0])
def test_an_empty_write_is_a_transaction_too(
    spark_partitions: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    name = topic(broker)
    rows = numbered(spark, 0, spark_partitions) if spark_partitions else spark.createDataFrame([], "value STRING")
    receipt = sink_of(broker, name).write(rows)
    assert (receipt.records, receipt.attempts) == (0, 1)
    assert values_in(broker, name, 1) == []


@WAYS
def test_what_a_broker_does_not_take_leaves_nothing(
    spark_partitions: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory
) -> None:
    name = topic(broker, partitions=2, config={"max.message.bytes": "20000"})
    rows = numbered(spark, 2_000, spark_partitions).selectExpr("*", "CAST(value % 2 AS INT) AS partition")
    large = rows.selectExpr("key", "partition", "IF(value = 1500, repeat(uuid(), 2000), value) AS value")
    with pytest.raises(UsageError, match="MESSAGE_TOO_LARGE"):
        sink_of(broker, name, batch_bytes=100_000, compression="none").write(large)
    assert values_in(broker, name, 2) == []
    # The same id goes on.
    assert sink_of(broker, name, batch_bytes=10_000).write(rows).records == 2_000
    assert len(values_in(broker, name, 2)) == 2_000


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_topic_that_does_not_exist(guarantee: str, spark: SparkSession, broker: DevBroker) -> None:
    with pytest.raises((UsageError, RetriableError), match="no-such-topic"):
        sink_of(broker, "no-such-topic", guarantee, **{"kafka.request.timeout.ms": 5_000}).write(numbered(spark, 1))


def test_wrong_columns_fail_before_anything_runs(spark: SparkSession, broker: DevBroker, topic: TopicFactory) -> None:
    with pytest.raises(UsageError, match=r"column 'amount' that Kafka has no place for; there is no column 'value'"):
        sink_of(broker, topic(broker)).write(spark.range(3).selectExpr("id AS amount"))


def test_a_sink_cannot_leave_its_process(broker: DevBroker) -> None:
    """Spark Connect would pickle it and call it where there is no driver."""
    with pytest.raises(UsageError, match="Spark Connect"):
        pickle.dumps(sink_of(broker, "orders"))


# Streams.


def lag(broker: DevBroker, group: str, topic: str, partitions: int) -> int:
    """What Kafka's own tools would show: end of the log, less what the group has committed."""
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = [ConfluentPartition(topic, index) for index in range(partitions)]
    answers = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
    committed = {found.partition: found.offset for found in answers[group].result(30).topic_partitions}
    ends = admin.list_offsets({each: OffsetSpec.latest() for each in asked})  # type: ignore[no-untyped-call]
    return sum(future.result(30).offset - committed[each.partition] for each, future in ends.items())


def copy(
    spark: SparkSession, broker: DevBroker, source: str, sink: KafkaSink, folder: Path, where: str = "true"
) -> StreamingQuery:
    rows = KafkaSource(
        broker.bootstrap_servers, topics=source, start="earliest", max_offsets_per_trigger=500, max_partitions=2
    )
    kept = rows.stream(spark).where(where).select("key", "value")
    query = sink.start(kept, str(folder / "checkpoint"), trigger="available-now")
    query.awaitTermination()
    sink.close()
    return query


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_group_has_no_lag_after_a_batch(
    guarantee: str, spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target = topic(broker, partitions=PARTITIONS), topic(broker, partitions=PARTITIONS)
    sink = sink_of(broker, target, guarantee, offsets_group=f"group-{source}")
    producer, sent = producer_of(broker), 0
    for _ in range(2):
        for index in range(PARTITIONS):
            send(producer, source, [b"%d" % number for number in range(sent, sent + 300)], partition=index)
            sent += 300
        copy(spark, broker, source, sink, tmp_path)
        assert lag(broker, f"group-{source}", source, PARTITIONS) == 0
    assert sorted(map(int, values_in(broker, target, PARTITIONS))) == list(range(sent))


def test_a_batch_without_rows_commits_its_offsets(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target = topic(broker), topic(broker)
    send(producer_of(broker), source, [b"%d" % number for number in range(700)], partition=0)
    sink = sink_of(broker, target, offsets_group=f"group-{source}")
    query = copy(spark, broker, source, sink, tmp_path, where="false")
    assert sink.last_receipt is not None
    assert (sink.last_receipt.batch_id, sink.last_receipt.records) == (1, 0)
    assert query.exception() is None
    assert lag(broker, f"group-{source}", source, 1) == 0
    assert values_in(broker, target, 1) == []


def test_a_query_that_is_stopped_does_not_run_its_batch_again(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparkonce")
    name, has_begun = topic(broker), tmp_path / "begun"

    def endless(_: pa.RecordBatch, __: int) -> pa.Array:
        has_begun.touch()
        time.sleep(600)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
    sink = sink_of(broker, name, partitioner=endless)
    query = sink.start(rows.selectExpr("CAST(value AS STRING) AS value"), str(tmp_path / "checkpoint"))
    assert wait_until(has_begun.exists, Deadline.after(60))
    query.stop()
    sink.close()
    assert caplog.text.count("is sent in one stage") == 1
    assert "was aborted" not in caplog.text
    assert values_in(broker, name, 1) == []


def test_asynchronous_progress_is_refused(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    """By Spark itself. With it a batch may be planned anew after a crash, with other offsets under the same number."""
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.foreachBatch(sink_of(broker, topic(broker)))
    writer = writer.option("checkpointLocation", str(tmp_path)).option("asyncProgressTrackingEnabled", "true")
    with pytest.raises(
        (StreamingQueryException, IllegalArgumentException), match="does not support async progress tracking"
    ):
        writer.start().awaitTermination(60)
