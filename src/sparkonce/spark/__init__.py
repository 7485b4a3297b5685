"""The only layer that imports pyspark: the source, the sinks and their stages."""

from sparkonce.spark.atomic import AtomicSinks
from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.sink import KafkaSink
from sparkonce.spark.source import register
from sparkonce.spark.source_builder import KafkaSource
from sparkonce.spark.source_figures import source_metrics
from sparkonce.spark.store_sinks import FileSink, MariaDBSink, PostgresSink, StoreSink

__all__ = [
    "AtomicSinks",
    "BatchReceipt",
    "FileSink",
    "KafkaSink",
    "KafkaSource",
    "MariaDBSink",
    "PostgresSink",
    "StoreSink",
    "register",
    "source_metrics",
]
