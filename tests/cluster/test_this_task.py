"""What every task of ours does first, in a real worker."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkonce.spark.this_task import this_task


def test_imports_are_set_aside_once(spark: SparkSession) -> None:
    def count_twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        this_task()
        first = gc.get_freeze_count()
        of_this_task: list[list[int]] = [[] for _ in range(1000)]
        this_task()
        yield pa.RecordBatch.from_pydict({"first": [first], "more": [gc.get_freeze_count() - first]})
        del of_this_task

    [counted] = spark.range(1).coalesce(1).mapInArrow(count_twice, "first long, more long").collect()
    assert counted["first"] > 10_000
    assert counted["more"] <= 0


def test_outside_of_a_task() -> None:
    with pytest.raises(RuntimeError, match="only in a Spark task"):
        this_task()
    assert gc.get_freeze_count() == 0
