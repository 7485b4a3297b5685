"""What all sinks of a streaming query share: Spark calls them with micro-batches, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.errors import UsageError
from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.offset_log import PlannedBatch, current_query_id, read_planned_batch


class Writer(Protocol):
    """Writes the micro-batches of one start of a query."""

    def write(self, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        """Writes one."""

    def close(self) -> None:
        """Ends the connections."""


class MicroBatchSink(ABC):
    """A sink for streaming queries: `sink.start(df, checkpoint=…)`, or `df.writeStream.foreachBatch(sink)`."""

    def __init__(self) -> None:
        self.last_receipt: BatchReceipt | None = None
        """What became of the latest micro-batch."""
        self._writer: Writer | None = None
        self._run_id = ""

    @abstractmethod
    def new_writer(self, spark: SparkSession) -> Writer:
        """For a query that starts."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """For `df.writeStream.foreachBatch(sink)`."""
        spark = rows.sparkSession
        batch = read_planned_batch(spark, current_query_id(spark), batch_id)
        self.last_receipt = self._writer_for(batch, spark).write(rows, batch)

    def start(self, rows: DataFrame, checkpoint: str, trigger: str | None = None) -> StreamingQuery:
        """Starts a streaming query; `trigger` is a processing time such as "1 second", or "available-now"."""
        writer = rows.writeStream.foreachBatch(self).option("checkpointLocation", checkpoint)
        if trigger == "available-now":
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        return writer.start()

    def close(self) -> None:
        """Ends the connections of a query that has ended. Another query may be started with this sink afterwards."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._run_id = None, ""

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
