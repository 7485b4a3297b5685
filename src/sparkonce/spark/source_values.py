"""Keys and values as text or JSON instead of bytes, with Spark's own functions; and what becomes of malformed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from sparkonce.errors import UsageError

ERROR_COLUMN = "_error"
ON_MALFORMED = ("fail", "null")
_CORRUPT = "__corrupt"

Converter = Callable[[Column], Column]
"""A format of the user's own: bytes in, anything out; null for bytes that it cannot convert."""
Format = str | Converter


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """What the bytes of a column are."""

    column: str
    format: Format
    schema: str | StructType | None = None

    def __post_init__(self) -> None:
        if isinstance(self.format, str) and self.format not in ("binary", "string", "json"):
            raise UsageError(f"{self.column}_format must be binary, string, json or a function, not {self.format!r}")
        if (self.format == "json") != (self.schema is not None):
            raise UsageError(f"{self.column}_schema goes with {self.column}_format='json', and that goes with a schema")


def with_formats(rows: DataFrame, formats: list[ValueFormat], on_malformed: str) -> DataFrame:
    """The same rows with converted columns; with `null` there is a column more that says what was wrong."""
    if on_malformed not in ON_MALFORMED:
        raise UsageError(f"on_malformed must be one of {', '.join(ON_MALFORMED)}, not {on_malformed!r}")
    errors: list[Column] = []
    converted: dict[str, Column] = {}
    for each in formats:
        if each.format == "binary":
            continue
        value = _converted(each)
        malformed = f.col(each.column).isNotNull() & value.isNull()
        problem = f.when(malformed, _problem(each))
        errors.append(problem)
        converted[each.column] = f.when(malformed, f.raise_error(problem)).otherwise(value)
        if on_malformed == "null":
            converted[each.column] = value
    if on_malformed == "null":
        converted[ERROR_COLUMN] = f.coalesce(*errors, f.lit(None).cast("string"))
    return rows.withColumns(converted) if converted else rows


def _converted(each: ValueFormat) -> Column:
    """The value, or null for what is malformed."""
    if callable(each.format):
        return each.format(f.col(each.column))
    text = f.try_validate_utf8(f.col(each.column).cast("string"))
    if each.format == "string":
        return text
    # Spark's reader gives a row of nulls for malformed text; the extra field tells it from a real one.
    schema = StructType([*_struct(each.schema).fields]).add(_CORRUPT, StringType())
    parsed = f.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    return f.when(parsed[_CORRUPT].isNull(), parsed.dropFields(_CORRUPT))


def _struct(schema: str | StructType | None) -> StructType:
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise UsageError(f"a JSON schema has named fields, for example 'id BIGINT, name STRING', not {schema!r}")
    return parsed


def _problem(each: ValueFormat) -> Column:
    kind = each.format if isinstance(each.format, str) else "what its function expects"
    expected = {"string": "UTF-8 text", "json": "JSON of its schema"}.get(kind, kind)
    return f.format_string(
        f"the {each.column} of %s-%d at offset %d is not {expected}",
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
    )
