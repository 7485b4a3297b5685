"""The columns of the source: those of Spark's built-in Kafka source, name by name and type by type."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition

HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)

_MICROSECONDS = pa.timestamp("us", "UTC")
_HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_ARROW_FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _MICROSECONDS),
    pa.field("timestampType", pa.int32()),
)


def spark_schema(*, include_headers: bool) -> StructType:
    """What a DataFrame of this source looks like."""
    return StructType([*COLUMNS, HEADERS] if include_headers else [*COLUMNS])


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """The same as Arrow has it; Spark takes Arrow batches only if the types are exactly these."""
    return pa.schema([*_ARROW_FIELDS, pa.field("headers", _HEADERS_TYPE)] if include_headers else [*_ARROW_FIELDS])


def spark_columns(arrow_batch: pa.RecordBatch, source: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    """Decoded records (`sparkonce.records.SCHEMA`) of one topic partition, as the columns that Spark expects."""
    rows = arrow_batch.num_rows
    columns = [
        arrow_batch["key"],
        arrow_batch["value"],
        pa.repeat(pa.scalar(source.topic, pa.string()), rows),
        pa.repeat(pa.scalar(source.partition, pa.int32()), rows),
        arrow_batch["offset"],
        _microseconds(arrow_batch["timestamp"], source),
        arrow_batch["timestamp_type"],
    ]
    if len(schema) > len(columns):
        columns.append(arrow_batch["headers"])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _microseconds(timestamps: pa.Array, source: TopicPartition) -> pa.Array:
    try:
        return timestamps.cast(_MICROSECONDS)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{source} has a record whose timestamp is beyond what Spark can hold: {error}") from error
