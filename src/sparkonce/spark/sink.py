"""`KafkaSink`: what users call."""

from __future__ import annotations

import time
import uuid
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.direct import DirectWriter
from sparkonce.spark.exactly_once import ExactlyOnceWriter, RunOptions
from sparkonce.spark.kafka_output import KafkaOutput
from sparkonce.spark.micro_batches import MicroBatchSink, Writer
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.spark.outputs import Select
from sparkonce.spark.sink_options import sink_options


class KafkaSink(MicroBatchSink):
    """Writes DataFrames to Kafka: streaming queries exactly once, bounded ones as one atomic transaction.

    sink = KafkaSink(bootstrap_servers="localhost:9092", topic="big-orders", transactional_id="big-orders")
    query = sink.start(df, checkpoint="checkpoints/big-orders", trigger="1 second")
    """

    def __init__(self, bootstrap_servers: str, *, select: Select = None, **options: Any) -> None:
        super().__init__()
        self.options = sink_options(bootstrap_servers, options)
        self.select = select

    @property
    def run_options(self) -> RunOptions:
        """How its micro-batches are run."""
        options = self.options
        return RunOptions(retries=options.retries, grants_host=options.grants_host, grants_port=options.grants_port)

    def write(self, rows: DataFrame) -> BatchReceipt:
        """Writes a bounded DataFrame; exactly once means in one transaction, all or nothing."""
        name = f"write-{uuid.uuid4()}"
        writer = self.new_writer(rows.sparkSession)
        try:
            return writer.write(rows, PlannedBatch(name, name, 0, time.time_ns() // 1_000_000, ()))
        finally:
            writer.close()

    def new_writer(self, spark: SparkSession) -> Writer:
        """As `MicroBatchSink` says."""
        if self.options.guarantee == "exactly-once":
            return ExactlyOnceWriter(spark, self.run_options, KafkaOutput(self.options, self.select))
        return DirectWriter(self.options, self.select)
