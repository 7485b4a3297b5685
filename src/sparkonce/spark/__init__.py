"""The only layer that imports pyspark: the source, the sink and its stages."""

from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.sink import KafkaSink
from sparkonce.spark.source import register
from sparkonce.spark.source_builder import KafkaSource
from sparkonce.spark.source_figures import source_metrics

__all__ = ["BatchReceipt", "KafkaSink", "KafkaSource", "register", "source_metrics"]
