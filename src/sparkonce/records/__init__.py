"""Arrow columns ↔ Kafka record batches (magic 2), with no Python object per record. Knows no network and no Spark."""

from sparkonce.records.batches import BatchHeaders, read_headers
from sparkonce.records.columns import RecordColumns, record_columns
from sparkonce.records.decode import SCHEMA, DecodeLimits, decode
from sparkonce.records.encode import BATCH_BYTES_MAX, EncodedBatch, encode
from sparkonce.records.layout import Codec
from sparkonce.records.partition import (
    Partitioner,
    StickyPartition,
    custom_partitions,
    partition_rows,
    rows_of_partitions,
)
from sparkonce.records.seal import record_count, seal

__all__ = [
    "BATCH_BYTES_MAX",
    "SCHEMA",
    "BatchHeaders",
    "Codec",
    "DecodeLimits",
    "EncodedBatch",
    "Partitioner",
    "RecordColumns",
    "StickyPartition",
    "custom_partitions",
    "decode",
    "encode",
    "partition_rows",
    "read_headers",
    "record_columns",
    "record_count",
    "rows_of_partitions",
    "seal",
]
