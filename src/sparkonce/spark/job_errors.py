"""What a failed Spark job means: the error of ours that a task raised, if it was one. Pure: text in, error out."""

from __future__ import annotations

import re
import sys

from sparkonce import errors
from sparkonce.errors import AbortableError, SparkonceError, UsageError

_OURS = re.compile(r"^\s*sparkonce\.[\w.]+\.(\w+Error): (.+)$", re.MULTILINE)

# What Spark itself gives up on when executors are lost, and what running the micro-batch again can cure.
_LOST = re.compile(
    "ExecutorLostFailure|FetchFailed|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|indeterminate output"
    "|Python worker exited unexpectedly"
)
_NOT_INSTALLED = "ModuleNotFoundError: No module named 'sparkonce'"


def error_of_task(job_error: BaseException) -> SparkonceError | None:
    """The last error of this package in a job's failure; None if the job failed for a reason of its own."""
    text = str(job_error)
    found = _OURS.findall(text)
    if _NOT_INSTALLED in text:
        return UsageError(
            "the Python of Spark's tasks has no sparkonce: it is another one than the driver's. Set PYSPARK_PYTHON to "
            f"{sys.executable} before Spark starts, or install sparkonce in the Python of the executors"
        )
    if not found:
        lost = _LOST.search(text)
        return AbortableError(f"Spark lost tasks of the job ({lost[0]})") if lost else None
    # A traceback shows causes first: what was raised at last carries the verdict. When the owner of a share fails, its
    # followers only say that it is lost; the owner's own error is the reason.
    name, message = next((item for item in reversed(found) if item[0] != "ShareLostError"), found[-1])
    kind = getattr(errors, name, AbortableError)
    return kind(message) if issubclass(kind, SparkonceError) else AbortableError(message)
