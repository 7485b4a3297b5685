"""The columns that Spark gets are exactly the ones that it expects."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.records import SCHEMA
from sparkonce.spark.source import KafkaDataSource
from sparkonce.spark.source_columns import arrow_schema, spark_columns, spark_schema
from sparkonce.spark.source_options import source_options
from sparkonce.spark.source_stream import KafkaStreamReader

SOURCE = TopicPartition("t", 3)


@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_types_are_sparks(include_headers: bool) -> None:
    expected = to_arrow_schema(spark_schema(include_headers=include_headers), timezone="UTC")
    assert arrow_schema(include_headers=include_headers).equals(expected)


def records(timestamp_ms: int) -> pa.RecordBatch:
    row = {"key": b"k", "value": None, "offset": 5, "timestamp": timestamp_ms, "timestamp_type": 1, "headers": None}
    columns = [
        pa.array([row[field.name]], pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array([row[field.name]], field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_decoded_records_become_sparks_columns() -> None:
    rows = spark_columns(records(1_500), SOURCE, arrow_schema(include_headers=True))
    (row,) = rows.cast(pa.schema([*rows.schema.remove(5).insert(5, pa.field("timestamp", pa.int64()))])).to_pylist()
    assert row == {
        "key": b"k",
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp": 1_500_000,
        "timestampType": 1,
        "headers": None,
    }
    assert spark_columns(records(0), SOURCE, arrow_schema(include_headers=False)).num_columns == 7


def test_a_timestamp_that_spark_cannot_hold() -> None:
    with pytest.raises(UsageError, match="t-3 has a record whose timestamp"):
        spark_columns(records(2**62), SOURCE, arrow_schema(include_headers=False))


def test_the_reader_travels_without_its_client() -> None:
    reader = KafkaStreamReader(source_options({"kafka.bootstrap.servers": "here", "subscribe": "t"}, streaming=True))
    reader._plan()
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert copy._client is None
    assert copy._options == reader._options
    reader.stop()


def test_options_fail_when_the_schema_is_asked_for() -> None:
    with pytest.raises(UsageError, match="did you mean 'subscribe'"):
        KafkaDataSource({"kafka.bootstrap.servers": "here", "subscribes": "t"}).schema()
