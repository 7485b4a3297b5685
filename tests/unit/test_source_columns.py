"""The columns that Spark gets are exactly the ones that it expects."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.records import SCHEMA
from sparkonce.spark.source import KafkaDataSource
from sparkonce.spark.source_columns import Columns, spark_columns
from sparkonce.spark.source_formats import ColumnFormat, RecordFormats
from sparkonce.spark.source_options import source_options
from sparkonce.spark.source_stream import KafkaStreamReader

SOURCE = TopicPartition("t", 3)


TEXTS = RecordFormats(key=ColumnFormat("key", "string"), value=ColumnFormat("value", "string"), on_malformed="raw")


def schemas(columns: Columns) -> tuple[StructType, pa.Schema]:
    spark = columns.spark_schema()
    assert isinstance(spark, StructType)
    return spark, columns.arrow_schema(spark)


@pytest.mark.parametrize("formats", [RecordFormats(), TEXTS])
@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_types_are_sparks(include_headers: bool, formats: RecordFormats) -> None:
    spark, arrow = schemas(Columns(include_headers=include_headers, formats=formats))
    assert arrow.equals(to_arrow_schema(spark, timezone="UTC"))


def test_a_schema_with_json_is_a_text_for_spark() -> None:
    value = ColumnFormat("value", "json", "id BIGINT, tags ARRAY<STRING>")
    ddl = Columns(formats=RecordFormats(value=value, on_malformed="null")).spark_schema()
    assert ddl == (
        "`key` binary, `value` STRUCT<id BIGINT, tags ARRAY<STRING>>, `topic` string, `partition` int, "
        "`offset` bigint, `timestamp` timestamp, `timestampType` int, `_error` string"
    )


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
    rows = spark_columns(records(1_500), SOURCE, schemas(Columns(include_headers=True))[1], RecordFormats())
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
    assert spark_columns(records(0), SOURCE, schemas(Columns())[1], RecordFormats()).num_columns == 7


def test_a_timestamp_that_spark_cannot_hold() -> None:
    with pytest.raises(UsageError, match="t-3 has a record whose timestamp"):
        spark_columns(records(2**62), SOURCE, schemas(Columns())[1], RecordFormats())


def test_the_reader_travels_without_its_client() -> None:
    options = source_options({"kafka.bootstrap.servers": "here", "subscribe": "t"}, streaming=True)
    reader = KafkaStreamReader(options, schemas(options.columns)[1])
    reader._plan()
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert copy._client is None
    assert copy._options == reader._options
    assert copy._schema == reader._schema
    reader.stop()


def test_options_fail_when_the_schema_is_asked_for() -> None:
    with pytest.raises(UsageError, match="did you mean 'subscribe'"):
        KafkaDataSource({"kafka.bootstrap.servers": "here", "subscribes": "t"}).schema()
