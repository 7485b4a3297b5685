"""The Spark task that is running in this Python process."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def this_task() -> TaskContext:
    """The context of the task; an error outside of tasks."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs only in a Spark task")
    set_imports_aside()
    return context


@cache
def set_imports_aside() -> None:
    """Once in a worker process. Spark collects garbage after every task, and nearly all of that time, 60 ms, goes into
    looking at what pyarrow, numba and kafka-python created when they were imported, which is never garbage.
    """
    gc.collect()
    gc.freeze()
