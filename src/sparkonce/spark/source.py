"""`format("sparkonce")`: a Kafka source with the columns and option names of Spark's built-in one, read into Arrow."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparkonce.errors import UsageError
from sparkonce.fetch import bounded_ranges
from sparkonce.spark.source_ending import end_queries_at_their_stop
from sparkonce.spark.source_options import SourceOptions, source_options
from sparkonce.spark.source_stream import KafkaStreamReader
from sparkonce.spark.source_tasks import input_partitions, read_partition
from sparkonce.wire import Client

FORMAT = "sparkonce"


def register(spark: SparkSession) -> None:
    """Makes `format("sparkonce")` known to a session, and lets its streams that have a stop end by themselves."""
    spark.dataSource.register(KafkaDataSource)
    end_queries_at_their_stop(spark)


class KafkaDataSource(DataSource):
    """What Spark makes of `format("sparkonce")` and its options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType | str:
        """Asked for by `load()`, so that a wrong option fails there and not when the query runs."""
        # Which of the two it will be is not known here. What both accept is right; else say what the stream says.
        try:
            options = source_options(self.options, streaming=False)
        except UsageError:
            options = source_options(self.options, streaming=True)
        return options.columns.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`; the schema is the one above."""
        options = source_options(self.options, streaming=False)
        return KafkaReader(options, options.columns.arrow_schema(schema))

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        """For `spark.readStream`; the schema is the one above."""
        options = source_options(self.options, streaming=True)
        return KafkaStreamReader(options, options.columns.arrow_schema(schema))


class KafkaReader(DataSourceReader):
    """A bounded read."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The ranges, decided now."""
        with Client(self._options.connection) as client:
            settings = self._options.settings
            return input_partitions(bounded_ranges(client, settings), settings.max_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges."""
        return read_partition(self._options, self._schema, partition)
