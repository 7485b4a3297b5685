"""`KafkaSink`: what users call."""

from __future__ import annotations

import time
import uuid
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce.errors import UsageError
from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.direct import DirectWriter
from sparkonce.spark.exactly_once import ExactlyOnceWriter
from sparkonce.spark.offset_log import PlannedBatch, current_query_id, read_planned_batch
from sparkonce.spark.sink_options import sink_options


class KafkaSink:
    """Writes DataFrames to Kafka: streaming queries exactly once, bounded ones as one atomic transaction.

    sink = KafkaSink(bootstrap_servers="localhost:9092", topic="big-orders", transactional_id="big-orders")
    query = sink.start(df, checkpoint="checkpoints/big-orders", trigger="1 second")
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self.options = sink_options(bootstrap_servers, options)
        self.last_receipt: BatchReceipt | None = None
        """What became of the latest micro-batch."""
        self._writer: ExactlyOnceWriter | DirectWriter | None = None
        self._run_id = ""

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

    def write(self, rows: DataFrame) -> BatchReceipt:
        """Writes a bounded DataFrame; exactly once means in one transaction, all or nothing."""
        name = f"write-{uuid.uuid4()}"
        writer = self._new_writer(rows.sparkSession)
        try:
            return writer.write(rows, PlannedBatch(name, name, 0, time.time_ns() // 1_000_000, ()))
        finally:
            writer.close()

    def close(self) -> None:
        """Ends the connections of a query that has ended. Another query may be started with this sink afterwards."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._run_id = None, ""

    def _new_writer(self, spark: SparkSession) -> ExactlyOnceWriter | DirectWriter:
        if self.options.guarantee == "exactly-once":
            return ExactlyOnceWriter(self.options, spark)
        return DirectWriter(self.options)

    def _writer_for(self, batch: PlannedBatch, spark: SparkSession) -> ExactlyOnceWriter | DirectWriter:
        """A query that was started again begins as after a crash: it claims its id and reads the marker."""
        if self._writer is not None and batch.run_id == self._run_id:
            return self._writer
        self.close()
        self._writer, self._run_id = self._new_writer(spark), batch.run_id
        return self._writer

    def __reduce__(self) -> NoReturn:
        # A Spark Connect session pickles the callback and runs it elsewhere, without the driver's JVM.
        raise UsageError("KafkaSink runs in the driver's process; a Spark Connect session cannot use it")
