"""Malformed records as rows for the sink, beside those of the user's own query: one DataFrame, so one transaction.

A dead letter has the bytes and the headers of its record, and headers more that say where it came from and what is
wrong. It has the time at which it is written: with its own it might be too old for the topic's retention already.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from sparkonce.errors import UsageError
from sparkonce.spark.source_formats import ERROR_COLUMN, RAW_COLUMNS

Transform = Callable[[DataFrame], DataFrame]
"""What the user makes of the good rows: columns as the sink takes them."""

HEADERS_TYPE = "array<struct<key: string, value: binary>>"


def with_dead_letters(rows: DataFrame, transform: Transform, topic: str, *, keep_headers: bool) -> DataFrame:
    """The rows of `transform`, and a row for the topic for each malformed record."""
    malformed = f.col(ERROR_COLUMN).isNotNull()
    extra = [ERROR_COLUMN, *RAW_COLUMNS.values(), *([] if keep_headers else ["headers"])]
    good = transform(rows.where(~malformed).drop(*extra))
    if "value" not in good.columns:
        raise UsageError(f"the transform must give the sink's columns, at least 'value'; it gave {good.columns}")
    # The sink takes texts as well as bytes, a union takes one of them.
    texts = [field.name for field in good.schema.fields if isinstance(field.dataType, StringType)]
    casts: dict[str, Column] = {name: f.col(name).cast("binary") for name in ("key", "value") if name in texts}
    if "headers" in good.columns:
        casts["headers"] = f.col("headers").cast(HEADERS_TYPE)
    fitting = good.withColumns(casts) if casts else good
    return fitting.unionByName(_letters(rows.where(malformed), topic), allowMissingColumns=True)


def _letters(rows: DataFrame, topic: str) -> DataFrame:
    origin = f.array(
        _header("sparkonce.error", f.col(ERROR_COLUMN)),
        *(_header(f"sparkonce.{name}", f.col(name)) for name in ("topic", "partition", "offset")),
    )
    return rows.select(
        f.col(RAW_COLUMNS["value"]).alias("value"),
        f.col(RAW_COLUMNS["key"]).alias("key"),
        f.lit(topic).alias("topic"),
        f.concat(f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE)), origin).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
