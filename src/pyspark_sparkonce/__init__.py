"""Found by Spark, which looks for modules named `pyspark_…`: makes `format("sparkonce")` work without registration."""

from sparkonce.spark.source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
