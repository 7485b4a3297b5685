"""Runs a pipeline to its end, tells how it stands meanwhile, and ends it after a micro-batch when it is asked to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparkonce.errors import StoppedError
from sparkonce.pipeline.build import start
from sparkonce.pipeline.model import Pipeline
from sparkonce.pipeline.spark_errors import error_of_query, refused_by_spark
from sparkonce.spark.source_figures import source_metrics

LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a pipeline stands."""

    batch_id: int | None = None
    """The last micro-batch that Spark has finished."""
    rows: int = 0
    """Read since the start."""
    rows_per_second: float = 0.0
    pending: int | None = None
    """Offsets that were there and not read when the last micro-batch was planned."""
    committed: int = 0
    found_committed: int = 0
    """By an earlier start."""
    aborted: int = 0
    open_seconds: float = 0.0
    """For how long the transaction has been open; 0 if none is."""
    is_busy: bool = False


class Running:
    """A pipeline whose query was started. Not for two threads at a time."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        *,
        once: bool = False,
        trigger: str | None = None,
        max_offsets_per_trigger: int | None = None,
    ) -> None:
        with refused_by_spark():
            self._query, self._sink = start(
                spark, pipeline, once=once, trigger=trigger, max_offsets_per_trigger=max_offsets_per_trigger
            )
        self._counted: dict[int, int] = {}

    def wait(self, show: Callable[[Status], None], stop: threading.Event, stop_now: threading.Event) -> Status:
        """Until the query ends. After `stop` it finishes its micro-batch, after `stop_now` not even that."""
        while self._query.isActive:
            if stop_now.is_set() or (stop.is_set() and self._is_between_batches()):
                self._query.stop()
                break
            show(self.status())
            time.sleep(LOOK_SECONDS)
        last = self.status()
        self._sink.close()
        self._raise_its_error()
        return last

    def status(self) -> Status:
        """Now."""
        # While it waits, Spark tells of micro-batches that never were.
        worked = [progress for progress in self._query.recentProgress if progress["numInputRows"]]
        self._counted |= {int(progress["batchId"]): int(progress["numInputRows"]) for progress in worked}
        progress = worked[-1] if worked else None
        told: dict[str, Any] = json.loads(progress.json) if progress is not None else {}
        metrics = source_metrics(progress) if progress is not None else ()
        totals = self._sink.totals
        return Status(
            batch_id=told.get("batchId"),
            rows=sum(self._counted.values()),
            rows_per_second=float(told.get("processedRowsPerSecond", 0.0)),
            pending=sum(source.pending_offsets for source in metrics) if metrics else None,
            committed=totals.committed,
            found_committed=totals.found_committed,
            aborted=totals.aborted,
            open_seconds=self._sink.open_seconds,
            is_busy=bool(self._query.status["isTriggerActive"]),
        )

    def _is_between_batches(self) -> bool:
        """From now on no micro-batch begins; one that is running goes on."""
        self._sink.finish()
        return not self._query.status["isTriggerActive"]

    def _raise_its_error(self) -> None:
        error = self._query.exception()
        if error is None:
            return
        ours = error_of_query(error)
        if not isinstance(ours, StoppedError):
            raise ours from error
