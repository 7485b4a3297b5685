"""What the sink reads from Spark and from its user: offset log, columns, options, failures of tasks. No Spark runs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkonce.errors import (
    AbortableError,
    CorruptRecordsError,
    InDoubtError,
    RetriableError,
    SparkonceError,
    UsageError,
)
from sparkonce.model import TopicPartition
from sparkonce.spark.input_columns import check_columns
from sparkonce.spark.job_errors import error_of_task
from sparkonce.spark.offset_log import PlannedBatch, parse_planned_batch
from sparkonce.spark.sink_options import SinkOptions, sink_options

# Spark's offset log.

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000123,"conf":{"spark.sql.shuffle.partitions":"200"}}'
BUILT_IN = '{"orders":{"0":5,"2":17},"refunds":{"0":0}}'
OURS = json.dumps(
    {"version": 1, "start": {"orders": {"0": 1}}, "end": {"orders": {"0": 9, "1": 4}}, "topicIds": {"orders": "abc"}}
)


def planned(*sources: str, ending: str = "") -> PlannedBatch:
    return parse_planned_batch("query", "run", 7, "\n".join(["v1", METADATA, *sources]) + ending)


def test_a_planned_batch_is_read() -> None:
    batch = planned(BUILT_IN)
    assert (batch.query_id, batch.run_id, batch.batch_id, batch.planned_ms) == ("query", "run", 7, 1_700_000_000_123)
    assert batch.sources == (BUILT_IN,)
    assert planned(BUILT_IN, ending="\n") == batch


def test_the_end_offsets_of_kafka_sources() -> None:
    orders, refunds = TopicPartition("orders", 0), TopicPartition("refunds", 0)
    assert planned(BUILT_IN).kafka_offsets() == {orders: 5, TopicPartition("orders", 2): 17, refunds: 0}
    assert planned(OURS).kafka_offsets() == {orders: 9, TopicPartition("orders", 1): 4}
    other = '{"invoices":{"3":1}}'
    assert planned("-", OURS, other).kafka_offsets() == {
        orders: 9,
        TopicPartition("orders", 1): 4,
        TopicPartition("invoices", 3): 1,
    }


@pytest.mark.parametrize("source", ["5", '"text"', "not json", "null", "[1]", '{"logOffset":3}', '{"version":1}', "{}"])
def test_sources_of_other_kinds_have_no_kafka_offsets(source: str) -> None:
    assert planned(source).kafka_offsets() == {}


def test_a_source_without_an_offset_is_left_out() -> None:
    assert planned("-", BUILT_IN).sources == (BUILT_IN,)


def test_a_digest_tells_plans_apart() -> None:
    assert planned(BUILT_IN).digest == planned(BUILT_IN).digest
    assert planned(BUILT_IN).digest != planned(BUILT_IN.replace("17", "18")).digest
    assert planned("a", "b").digest != planned("b", "a").digest


def test_lines_end_only_where_spark_ends_them() -> None:
    path = '{"path":"a\u2028b\x85c"}'
    assert planned(path).sources == (path,)


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "", "{}"])
def test_another_version_of_the_log(text: str) -> None:
    with pytest.raises(UsageError, match="has version"):
        parse_planned_batch("query", "run", 7, text)


@pytest.mark.parametrize("text", ["v1", "v1\n", "v1\n{}", "v1\nnot json\n{}", "v1\n5"])
def test_a_damaged_log(text: str) -> None:
    with pytest.raises(UsageError, match="entry 7 of Spark's offset log cannot be read"):
        parse_planned_batch("query", "run", 7, text)


# Columns.

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def options(**more: Any) -> SinkOptions:
    return sink_options("localhost:9092", {"guarantee": "none", **more})


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_in_a_fixed_order() -> None:
    given = schema(
        headers=HEADERS,
        timestamp=TimestampType(),
        partition=IntegerType(),
        topic=StringType(),
        key=BinaryType(),
        value=StringType(),
    )
    assert check_columns(given, options()) == ["value", "key", "topic", "partition", "timestamp", "headers"]


@pytest.mark.parametrize("kind", [TimestampType(), TimestampNTZType(), LongType()])
def test_timestamps(kind: DataType) -> None:
    assert check_columns(schema(value=BinaryType(), timestamp=kind), options(topic="t")) == ["value", "timestamp"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (schema(key=StringType()), "there is no column 'value'"),
        (schema(value=DoubleType()), "column 'value' must be binary or string, but it is double"),
        (schema(value=StringType(), amount=LongType()), "there is a column 'amount' that Kafka has no place for"),
        (schema(value=StringType(), Key=StringType()), "there is a column 'Key'"),
        (schema(value=StringType(), partition=StringType()), "column 'partition' must be int"),
        (schema(value=StringType(), headers=ArrayType(StringType())), "column 'headers' must be array<struct<key"),
        (schema(value=StringType(), headers=StringType()), "column 'headers' must be"),
        (schema(value=StringType()).add("value", StringType()), "there are several columns 'value'"),
    ],
)
def test_what_does_not_fit_is_named(given: StructType, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_columns(given, options(topic="t"))
    assert said in str(refused.value)
    assert given.simpleString() in str(refused.value)
    assert "value (binary or string)" in str(refused.value)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError, match=r"no column 'topic'.*no column 'value'"):
        check_columns(schema(key=StringType()), options())


# Options.


def test_client_properties_are_passed_on() -> None:
    given = options(**{"kafka.request.timeout.ms": 1234, "topic": "t"})
    assert given.connection.request_timeout_ms == 1234
    assert given.topic == "t"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guarantee": "exactly-once"}, "needs a transactional_id"),
        ({"guarantee": "twice"}, "exactly-once, at-least-once, none"),
        ({"guarantee": "at-least-once", "acks": 1}, "needs acks=-1"),
        ({"compresion": "lz4"}, "did you mean 'compression'"),
        ({"connection": None}, "unknown sink option 'connection'"),
        ({"compression": "brotli"}, "compression must be one of"),
        ({"on_missing_marker": "ask"}, "on_missing_marker must be one of"),
        ({"kafka.reqest.timeout.ms": 5}, "did you mean 'request.timeout.ms'"),
        ({"requests_in_flight": 6}, "requests_in_flight must be a whole number from 1 to 5, not 6"),
        ({"requests_in_flight": 0}, "requests_in_flight"),
        ({"one_stage": "false"}, "one_stage must be True or False, not 'false'"),
        ({"retries": -1}, "retries must be a whole number from 0"),
        ({"retries": "3"}, "retries must be a whole number"),
        ({"deadline_ms": 0}, "deadline_ms must be"),
        ({"deadline_ms": True}, "deadline_ms must be"),
        ({"batch_bytes": 0}, "batch_bytes must be"),
        ({"transaction_timeout_ms": 2**31}, "transaction_timeout_ms must be"),
        ({"acks": 2}, "acks must be"),
        ({"grants_port": 65_536}, "grants_port must be"),
    ],
)
def test_wrong_options_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        options(**given)


# Failures of tasks, as Spark reports them.

JOB = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in
stage 3.0 (TID 9) (node executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
{}
\t... 1 more"""
CHAIN = """sparkonce.errors.RetriableError: Metadata failed with UNKNOWN_TOPIC_OR_PARTITION (3)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "sender.py", line 5, in send
sparkonce.errors.UsageError: topic x does not exist"""


def failed(text: str) -> SparkonceError | None:
    return error_of_task(RuntimeError(JOB.format(text, text)))


@pytest.mark.parametrize("kind", [UsageError, AbortableError, RetriableError, InDoubtError, CorruptRecordsError])
def test_a_tasks_error_is_raised_as_what_it_was(kind: type[SparkonceError]) -> None:
    found = failed(f"sparkonce.errors.{kind.__name__}: what: happened")
    assert type(found) is kind
    assert str(found) == "what: happened"


def test_the_error_and_not_its_cause() -> None:
    found = failed(CHAIN)
    assert type(found) is UsageError
    assert str(found) == "topic x does not exist"


def test_tasks_without_this_package() -> None:
    found = failed("ModuleNotFoundError: No module named 'sparkonce'")
    assert type(found) is UsageError
    assert f"Set PYSPARK_PYTHON to {sys.executable} before" in str(found)
    assert failed("ModuleNotFoundError: No module named 'sparkonce_of_others'") is None


def test_the_owners_error_and_not_its_followers() -> None:
    lost = "sparkonce.spark.grant_task.ShareLostError: share 0 cannot be sent"
    for text in (
        f"sparkonce.errors.UsageError: the reason\n{lost}",
        f"{lost}\nsparkonce.errors.UsageError: the reason",
    ):
        found = failed(text)
        assert type(found) is UsageError
    found = failed(lost)
    assert type(found) is AbortableError
    assert str(found) == "share 0 cannot be sent"


def test_an_error_of_the_users_own_is_not_ours() -> None:
    assert failed("ValueError: a user's function") is None
    assert failed("ValueError: it mentions sparkonce.errors.UsageError: in the text") is None
    assert type(failed("sparkonce.errors.NewerError: of a later version")) is AbortableError
