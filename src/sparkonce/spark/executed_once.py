"""A micro-batch that several jobs read, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


@contextmanager
def executed_once(rows: DataFrame) -> Iterator[DataFrame]:
    """The same rows, kept by the executors while the block uses them.

    Not `persist`: what an executor loses would be computed again in silence, and a query that is not deterministic
    would give other rows to the second output than to the first. Without lineage the job fails, and the micro-batch
    is aborted and runs again.
    """
    kept = rows.localCheckpoint()
    try:
        yield kept
    finally:
        # Spark would free them at some later collection of garbage.
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: FBT003
