"""What a Spark task of the source does: reads its ranges and gives Arrow batches. Holds nothing between tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sparkonce.fetch import OffsetRange, merged, read_range
from sparkonce.spark.source_columns import spark_columns
from sparkonce.spark.source_options import SourceOptions
from sparkonce.spark.this_task import set_imports_aside
from sparkonce.wire import Client


def input_partitions(ranges: tuple[OffsetRange, ...], max_partitions: int | None) -> list[InputPartition]:
    """One Spark partition a range, unless there shall be fewer."""
    return [InputPartition(group) for group in merged(ranges, max_partitions)]


def read_partition(options: SourceOptions, schema: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one Spark partition."""
    if partition.value is None:  # Spark runs one task with nothing where a bounded read has no partitions at all.
        return
    set_imports_aside()
    with Client(options.connection) as client:
        for wanted in partition.value:
            for arrow_batch in read_range(client, wanted, options.settings.read):
                yield spark_columns(arrow_batch, wanted.topic_partition, schema, options.columns.formats)
