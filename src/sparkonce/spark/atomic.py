"""`AtomicSinks`: several sinks of one query, all of which get a micro-batch, or none does."""

from __future__ import annotations

from pyspark.sql import SparkSession

from sparkonce.errors import UsageError
from sparkonce.spark.exactly_once import ExactlyOnceWriter
from sparkonce.spark.kafka_output import KafkaOutput
from sparkonce.spark.micro_batches import MicroBatchSink, Writer
from sparkonce.spark.sink import KafkaSink
from sparkonce.spark.store_output import StoreOutput
from sparkonce.spark.store_sinks import StoreSink


class AtomicSinks(MicroBatchSink):
    """Writes every micro-batch to all of its sinks, exactly once; each takes what its `select` says.

    sinks = AtomicSinks(
        KafkaSink("localhost:9092", topic="big-orders", transactional_id="orders", select=["key", "value"]),
        PostgresSink("host=localhost dbname=shop", table="orders", select=["id", "amount"]),
    )
    query = sinks.start(df, checkpoint="checkpoints/orders")

    The micro-batch is computed once. `retries`, `grants_host` and `grants_port` are those of the first sink.
    """

    def __init__(self, *sinks: KafkaSink | StoreSink) -> None:
        super().__init__()
        if not sinks:
            raise UsageError("AtomicSinks needs at least one sink")
        for sink in sinks:
            if not isinstance(sink, KafkaSink | StoreSink):
                raise UsageError(f"AtomicSinks takes Kafka, database and file sinks, not {type(sink).__name__}")
        kafka = [sink for sink in sinks if isinstance(sink, KafkaSink)]
        if len(kafka) > 1:
            raise UsageError(
                "one query has one Kafka transaction: use one KafkaSink, and a column 'topic' for several topics"
            )
        if kafka and kafka[0].options.guarantee != "exactly-once":
            raise UsageError(
                f"a KafkaSink with guarantee={kafka[0].options.guarantee!r} cannot be part of one decision"
            )
        self._run_options = sinks[0].run_options
        self._kafka = kafka[0] if kafka else None
        self._stores = [sink for sink in sinks if isinstance(sink, StoreSink)]

    def new_writer(self, spark: SparkSession) -> Writer:
        """As `MicroBatchSink` says."""
        kafka = KafkaOutput(self._kafka.options, self._kafka.select) if self._kafka else None
        stores = [StoreOutput(sink.participant, sink.select) for sink in self._stores]
        return ExactlyOnceWriter(spark, self._run_options, kafka, stores)
