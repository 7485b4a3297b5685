"""The only layer that imports pyspark: the source, the sink and its stages."""

from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.sink import KafkaSink
from sparkonce.spark.source import register

__all__ = ["BatchReceipt", "KafkaSink", "register"]
