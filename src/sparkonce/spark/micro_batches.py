"""What all sinks of a streaming query share: Spark calls them with micro-batches, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NoReturn, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.errors import StoppedError, UsageError
from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.offset_log import PlannedBatch, current_query_id, read_planned_batch


@dataclass(slots=True)
class Totals:
    """What has become of a sink's micro-batches so far."""

    committed: int = 0
    found_committed: int = 0
    """By an earlier start, which was ended before Spark knew of it."""
    aborted: int = 0
    """Runs that were aborted; their micro-batches ran again."""

    def add(self, receipt: BatchReceipt) -> None:
        """Counts one."""
        self.committed += not receipt.already_committed
        self.found_committed += receipt.already_committed
        self.aborted += max(0, receipt.attempts - 1)


class Writer(Protocol):
    """Writes the micro-batches of one start of a query."""

    @property
    def open_seconds(self) -> float:
        """For how long a transaction has been open now; 0 if none is."""

    def write(self, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        """Writes one."""

    def close(self) -> None:
        """Ends the connections."""


class MicroBatchSink(ABC):
    """A sink for streaming queries: `sink.start(df, checkpoint=…)`, or `df.writeStream.foreachBatch(sink)`."""

    def __init__(self) -> None:
        self.last_receipt: BatchReceipt | None = None
        """What became of the latest micro-batch."""
        self.totals = Totals()
        self._writer: Writer | None = None
        self._run_id = ""
        self._finishing = False

    @abstractmethod
    def new_writer(self, spark: SparkSession) -> Writer:
        """For a query that starts."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """For `df.writeStream.foreachBatch(sink)`."""
        if self._finishing:
            raise StoppedError(f"batch {batch_id} is left for the next start, as was asked for")
        spark = rows.sparkSession
        batch = read_planned_batch(spark, current_query_id(spark), batch_id)
        self.last_receipt = self._writer_for(batch, spark).write(rows, batch)
        self.totals.add(self.last_receipt)

    @property
    def open_seconds(self) -> float:
        """For how long a transaction has been open now; 0 if none is."""
        return self._writer.open_seconds if self._writer else 0.0

    def finish(self) -> None:
        """No micro-batch is begun any more: the query ends after the one that is running, with a StoppedError."""
        self._finishing = True

    def start(
        self, rows: DataFrame, checkpoint: str, trigger: str | None = None, name: str | None = None
    ) -> StreamingQuery:
        """Starts a streaming query; `trigger` is a processing time such as "1 second", or "available-now". Spark shows
        the name in its UI, its metrics and its events.
        """
        writer = rows.writeStream.foreachBatch(self).option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger == "available-now":
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        return writer.start()

    def close(self) -> None:
        """Ends the connections of a query that has ended. Another query may be started with this sink afterwards."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._run_id, self._finishing = None, "", False

    def _writer_for(self, batch: PlannedBatch, spark: SparkSession) -> Writer:
        """A query that was started again begins as after a crash: it claims what it owns and reads the decision."""
        if self._writer is not None and batch.run_id == self._run_id:
            return self._writer
        self.close()
        self._writer, self._run_id = self.new_writer(spark), batch.run_id
        return self._writer

    def __reduce__(self) -> NoReturn:
        # A Spark Connect session pickles the callback and runs it elsewhere, without the driver's JVM.
        name = type(self).__name__
        raise UsageError(f"{name} runs in the driver's process; a Spark Connect session cannot use it")
