"""Formats of the user's own: functions from a column of bytes to anything, applied by Spark to what the source gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from sparkonce.spark.source_formats import ERROR_COLUMN, RAW_COLUMNS

Converter = Callable[[Column], Column]
"""Bytes in, anything out; null for bytes that it cannot convert."""


def with_functions(rows: DataFrame, functions: Mapping[str, Converter], on_malformed: str) -> DataFrame:
    """The same rows with the columns converted; what is malformed is treated as the source does it."""
    problems = {column: _problem(column, function) for column, function in functions.items()}
    if not problems:
        return rows
    converted = {column: function(f.col(column)) for column, function in functions.items()}
    if on_malformed == "fail":
        return rows.withColumns(
            {
                name: f.when(problems[name].isNotNull(), f.raise_error(problems[name])).otherwise(value)
                for name, value in converted.items()
            }
        )
    converted[ERROR_COLUMN] = f.coalesce(f.col(ERROR_COLUMN), *problems.values())
    if on_malformed == "raw":
        malformed = f.coalesce(*problems.values()).isNotNull()
        converted |= {
            raw: f.coalesce(f.col(raw), f.when(malformed, f.col(column).cast("binary")))
            for column, raw in RAW_COLUMNS.items()
        }
    return rows.withColumns(converted)


def _problem(column: str, function: Converter) -> Column:
    """What is wrong with the bytes of a column; null if nothing is."""
    text = f.format_string(
        f"the {column} of %s-%d at offset %d is not what its function expects",
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
    )
    return f.when(f.col(column).isNotNull() & function(f.col(column)).isNull(), text)
