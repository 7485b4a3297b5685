"""Spark's errors as one message each: what it says, without its plans and its Java stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from sparkonce.errors import AbortableError, SparkonceError, UsageError
from sparkonce.spark.job_errors import error_of_task

_LINES_MAX = 5
_NOISE = ("at ", "JVM stacktrace", "'", "+-", ":-", ":  ", "== ")
"""How lines of stacks and of plans begin."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def first_lines(text: str) -> str:
    """What a person reads of it."""
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith(_NOISE)]
    return "\n".join(lines[:_LINES_MAX]).rstrip(";")


def told_once() -> None:
    """Keeps PySpark from logging what it raises, which whoever catches it tells."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def error_of_query(error: PySparkException) -> SparkonceError:
    """Why a query ended: the error of ours, or what Spark says."""
    return error_of_task(error) or AbortableError(first_lines(str(error)))


@contextmanager
def refused_by_spark() -> Iterator[None]:
    """What Spark refuses before anything runs, a person has to change: the SQL, a column, a setting."""
    try:
        yield
    except PySparkException as error:
        raise error_of_task(error) or UsageError(first_lines(str(error))) from error
