"""Keys and values as text or JSON instead of bytes, converted in the task on whole Arrow columns; and which of them are
malformed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark.source_json import parse_json

FORMATS = ("binary", "string", "json")
ON_MALFORMED = ("fail", "null", "raw")
ERROR_COLUMN = "_error"
RAW_COLUMNS = {"key": "_key", "value": "_value"}
"""Where the bytes of malformed records are, and of no others, if they are asked for."""
_EXPECTED = {"string": "UTF-8 text", "json": "JSON of its schema"}

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """What the bytes of a column are."""

    column: str
    format: str = "binary"
    schema: str | None = None
    """Of JSON, as DDL: "id BIGINT, name STRING"."""

    def __post_init__(self) -> None:
        if (self.format == "json") != (self.schema is not None):
            raise UsageError(f"{self.column}Schema goes with {self.column}Format=json, and that goes with a schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormats:
    """What keys and values are, and what becomes of those that are something else."""

    key: ColumnFormat = ColumnFormat("key")
    value: ColumnFormat = ColumnFormat("value")
    on_malformed: str = "fail"
    """fail; null: null, with what is wrong in a column more; raw: the same, and the bytes in two columns more."""


def problem(column: str, expected: str, source: TopicPartition, offset: int) -> str:
    """What is wrong with a record."""
    return f"the {column} of {source} at offset {offset} is not {expected}"


@dataclass(frozen=True, slots=True, eq=False)
class Converted:
    """A converted column, null where it is malformed, and the rows where it is, each with what is wrong."""

    column: pa.Array
    problems: dict[int, str]


def convert_column(
    column: pa.Array, wanted: ColumnFormat, kind: pa.DataType, offsets: pa.Array, source: TopicPartition
) -> Converted:
    """Bytes as what they should be; nulls stay."""
    if wanted.format == "binary":
        return Converted(column, {})
    convert: Convert = parse_json_as(kind) if wanted.format == "json" else lambda values: values.cast(kind)
    converted, malformed = _convert_present(column, convert, kind)
    expected = _EXPECTED[wanted.format]
    return Converted(
        converted, {row: problem(wanted.column, expected, source, offsets[row].as_py()) for row in malformed}
    )


def parse_json_as(kind: pa.StructType) -> Convert:
    """Converts to structs of this type."""
    return lambda values: parse_json(values, kind)


def _convert_present(column: pa.Array, convert: Convert, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    if column.null_count == 0:
        return _convert_each(column, convert, kind)
    present = np.flatnonzero(column.is_valid())
    converted, malformed = _convert_each(column.drop_null(), convert, kind)
    places = np.zeros(len(column), np.int64)
    places[present] = np.arange(len(present))
    indexes = pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False))
    return converted.take(indexes), present[malformed].tolist()


def _convert_each(values: pa.Array, convert: Convert, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """All at once; if that fails, each half, down to the malformed ones alone. They become null."""
    try:
        return convert(values), []
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, kind), [0]
    middle = len(values) // 2
    left, left_malformed = _convert_each(values[:middle], convert, kind)
    right, right_malformed = _convert_each(values[middle:], convert, kind)
    return pa.concat_arrays([left, right]), [*left_malformed, *(middle + row for row in right_malformed)]
