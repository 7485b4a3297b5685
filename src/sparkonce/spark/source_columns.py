"""The columns of the source: those of Spark's built-in Kafka source, name by name and type by type, but for keys and
values in a format that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark.source_formats import ERROR_COLUMN, RAW_COLUMNS, ColumnFormat, RecordFormats, convert_column
from sparkonce.spark.source_json import json_type

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_BETWEEN = (
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_MICROSECONDS = pa.timestamp("us", "UTC")
_ARROW_TYPES = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _MICROSECONDS,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    ERROR_COLUMN: pa.string(),
    **dict.fromkeys(RAW_COLUMNS.values(), pa.binary()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns there are."""

    include_headers: bool = False
    formats: RecordFormats = field(default_factory=RecordFormats)

    def spark_schema(self) -> StructType | str:
        """What a DataFrame of this source looks like; as DDL where the schema of JSON is, which only Spark can read."""
        formats = self.formats
        fields = [*_BETWEEN]
        if self.include_headers:
            fields.append(StructField("headers", ArrayType(_HEADER)))
        if formats.on_malformed != "fail":
            fields.append(StructField(ERROR_COLUMN, StringType()))
        if formats.on_malformed == "raw":
            fields += [StructField(name, BinaryType()) for name in RAW_COLUMNS.values()]
        named = [*(StructField(each.column, _spark_type(each)) for each in (formats.key, formats.value)), *fields]
        json = {each.column: f"STRUCT<{each.schema}>" for each in (formats.key, formats.value) if each.schema}
        if not json:
            return StructType(named)
        return ", ".join(f"`{each.name}` {json.get(each.name, each.dataType.simpleString())}" for each in named)

    def arrow_schema(self, spark_schema: StructType) -> pa.Schema:
        """The same as Arrow has it, from what Spark made of it; Spark takes Arrow batches of exactly these types."""
        formats = {each.column: each for each in (self.formats.key, self.formats.value)}
        return pa.schema(
            [
                pa.field(each.name, _arrow_type(formats[each.name], each.dataType))
                if each.name in formats
                else pa.field(each.name, _ARROW_TYPES[each.name])
                for each in spark_schema.fields
            ]
        )


def _spark_type(wanted: ColumnFormat) -> DataType:
    return StringType() if wanted.format == "string" else BinaryType()


def _arrow_type(wanted: ColumnFormat, kind: DataType) -> pa.DataType:
    if wanted.format == "json":
        return json_type(kind, wanted.column)
    return pa.string() if wanted.format == "string" else pa.binary()


def spark_columns(
    arrow_batch: pa.RecordBatch, source: TopicPartition, schema: pa.Schema, formats: RecordFormats
) -> pa.RecordBatch:
    """Decoded records (`sparkonce.records.SCHEMA`) of one topic partition, as the columns that Spark expects."""
    rows, offsets = arrow_batch.num_rows, arrow_batch["offset"]
    key = convert_column(arrow_batch["key"], formats.key, schema.field("key").type, offsets, source)
    value = convert_column(arrow_batch["value"], formats.value, schema.field("value").type, offsets, source)
    problems = value.problems | key.problems
    if problems and formats.on_malformed == "fail":
        raise UsageError(f"{problems[min(problems)]}. Let onMalformed be null to go on without such records")
    columns = {
        "key": key.column,
        "value": value.column,
        "topic": pa.repeat(pa.scalar(source.topic, pa.string()), rows),
        "partition": pa.repeat(pa.scalar(source.partition, pa.int32()), rows),
        "offset": offsets,
        "timestamp": _microseconds(arrow_batch["timestamp"], source),
        "timestampType": arrow_batch["timestamp_type"],
        "headers": arrow_batch["headers"],
    }
    if formats.on_malformed != "fail":
        columns |= _malformed_columns(arrow_batch, problems)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _malformed_columns(arrow_batch: pa.RecordBatch, problems: dict[int, str]) -> dict[str, pa.Array]:
    """What is wrong, and the bytes of the records with which something is."""
    rows = arrow_batch.num_rows
    if not problems:
        return {name: pa.nulls(rows, _ARROW_TYPES[name]) for name in (ERROR_COLUMN, *RAW_COLUMNS.values())}
    malformed = np.zeros(rows, np.bool_)
    malformed[list(problems)] = True
    raw = {name: pc.if_else(pa.array(malformed), arrow_batch[column], None) for column, name in RAW_COLUMNS.items()}
    return {ERROR_COLUMN: pa.array([problems.get(row) for row in range(rows)], pa.string()), **raw}


def _microseconds(timestamps: pa.Array, source: TopicPartition) -> pa.Array:
    try:
        return timestamps.cast(_MICROSECONDS)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{source} has a record whose timestamp is beyond what Spark can hold: {error}") from error
