"""Is the output right: rows that a query should have written against rows that are there, by Spark, in bounded memory.

Every row has an id: an expression over the sink's columns, or the whole record. Both sides are brought together by it
once. Order is judged between rows of one key that come from one partition of the input and are in one of the output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from sparkonce.errors import UsageError

EXAMPLES_MAX = 5
_PARTITION_BITS = 33
"""`monotonically_increasing_id` has the Spark partition above these bits."""
_OFFSET_BITS = 48
_NULL = "-"
_PROBLEMS = ("missing", "doubled", "unexpected", "altered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found. A row is altered if its id is there and its key or value is another one."""

    expected: int
    found: int
    missing: int
    doubled: int
    unexpected: int
    altered: int
    out_of_order: int | None
    """None where it cannot be judged: the query brings rows of several input partitions together."""
    examples: dict[str, tuple[str, ...]]
    """Some ids of each problem."""

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.missing or self.doubled or self.unexpected or self.altered or self.out_of_order)


def verify(expected: DataFrame, found: DataFrame, id_expression: str | None = None) -> Verdict:
    """`expected` has the sink's columns, and `topic` if there are several; `found` has those of the source."""
    keeps_order = not _moves_rows(expected)
    matched = _matched(expected, found, id_expression).persist(StorageLevel.DISK_ONLY)
    try:
        totals = matched.agg(
            f.sum("expected").alias("expected"),
            f.sum("found").alias("found"),
            *(f.sum(_count(problem)).alias(problem) for problem in _PROBLEMS),
        ).first()
        if totals is None:
            raise UsageError("nothing was compared")
        counts = {name: int(totals[name] or 0) for name in ("expected", "found", *_PROBLEMS)}
        shown = str if id_expression else _readable
        examples = {name: tuple(map(shown, _examples(matched, name))) for name in _PROBLEMS if counts[name]}
        disorder = _out_of_order(matched) if keeps_order else None
        return Verdict(**counts, out_of_order=disorder, examples=examples)
    finally:
        matched.unpersist()


def _matched(expected: DataFrame, found: DataFrame, id_expression: str | None) -> DataFrame:
    """A row an id: how often it is on either side, what it holds there, and where it is."""
    no_place, by_topic = f.lit(None).cast("bigint"), "topic" in expected.columns
    place = f.col("partition").cast("bigint") * f.lit(1 << _OFFSET_BITS) + f.col("offset")
    ours = _side(expected, id_expression, f.monotonically_increasing_id(), no_place, by_topic=by_topic)
    theirs = _side(found, id_expression, no_place, place, by_topic=by_topic)
    is_expected = f.col("at").isNull()
    return (
        ours.unionByName(theirs)
        .groupBy("topic", "id")
        .agg(
            f.count_if(is_expected).alias("expected"),
            f.count_if(~is_expected).alias("found"),
            f.min(f.when(is_expected, f.col("key"))).alias("key"),
            f.bit_xor(f.when(is_expected, f.col("digest"))).alias("expected_digest"),
            f.bit_xor(f.when(~is_expected, f.col("digest"))).alias("found_digest"),
            f.min("input").alias("input"),
            f.min("at").alias("at"),
        )
    )


def _side(rows: DataFrame, id_expression: str | None, source: Column, at: Column, *, by_topic: bool) -> DataFrame:
    key = f.col("key").cast("binary") if "key" in rows.columns else f.lit(None).cast("binary")
    value = f.col("value").cast("binary")
    identity = f.expr(id_expression).cast("string") if id_expression else _whole(key, value)
    topic = f.col("topic") if by_topic else f.lit(None).cast("string")
    return rows.select(
        topic.alias("topic"),
        identity.alias("id"),
        key.alias("key"),
        f.xxhash64(key, value).alias("digest"),
        source.alias("input"),
        at.alias("at"),
    )


def _whole(key: Column, value: Column) -> Column:
    """A record as text, never the same for two records."""
    return f.concat_ws(" ", f.coalesce(f.hex(key), f.lit(_NULL)), f.coalesce(f.hex(value), f.lit(_NULL)))


def _readable(whole: str) -> str:
    parts = ("null" if part == _NULL else repr(bytes.fromhex(part))[2:-1] for part in whole.split(" "))
    return " ".join(parts)


def _count(problem: str) -> Column:
    expected, found = f.col("expected"), f.col("found")
    surplus = f.greatest(found - expected, f.lit(0))
    counts = {
        "missing": f.greatest(expected - found, f.lit(0)),
        "doubled": f.when(expected > 0, surplus).otherwise(0),
        "unexpected": f.when(expected == 0, surplus).otherwise(0),
        "altered": f.when((expected == found) & (f.col("expected_digest") != f.col("found_digest")), 1).otherwise(0),
    }
    return counts[problem]


def _examples(matched: DataFrame, problem: str) -> list[str]:
    rows = matched.where(_count(problem) > 0).select("id").limit(EXAMPLES_MAX).collect()
    return [str(row["id"]) for row in rows]


def _out_of_order(matched: DataFrame) -> int:
    """Rows that come before one that should have come before them."""
    once = matched.where("expected = 1 AND found = 1")
    source = f.shiftright("input", _PARTITION_BITS)
    target = f.shiftright("at", _OFFSET_BITS)
    before = f.lag("input").over(Window.partitionBy("topic", "key", source, target).orderBy("at"))
    return once.select((before > f.col("input")).alias("late")).where("late").count()


def _moves_rows(rows: DataFrame) -> bool:
    """Whether the plan brings rows of several partitions together, after which there is no order to keep."""
    plan = str(rows._jdf.queryExecution().executedPlan().toString())
    return re.search("(?<!Broadcast)Exchange", plan) is not None
