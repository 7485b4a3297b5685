"""The demo's input: generated orders, written to Kafka at a steady pace."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import encode, partition_rows, record_columns, rows_of_partitions, seal
from sparkonce.wire import Client, init_producer, produce

TOPIC = "orders"
PARTITIONS = 4
CHUNK_ROWS = 5_000


def generate_orders(count: int) -> Iterator[pa.RecordBatch]:
    """Orders as key and value (JSON); the same ones each time."""
    for first in range(0, count, CHUNK_ROWS):
        number = np.arange(first, min(first + CHUNK_ROWS, count))
        user = pa.array((number * 7_919) % 10_007).cast(pa.string())
        parts = ['{"id":', pa.array(number).cast(pa.string()), ',"user":"user-', user, '","amount":']
        parts += [pa.array(number % 997).cast(pa.string()), '.50,"currency":"EUR","note":"an order of the demo"}']
        value = pc.binary_join_element_wise(*parts, "")
        key = pc.binary_join_element_wise("user-", user, "")
        yield pa.RecordBatch.from_arrays([key, value], ["key", "value"])


def write_orders(bootstrap_servers: str, count: int, records_per_second: int, written: list[int]) -> None:
    """Writes all orders, not faster than asked; `written[0]` says how many are in Kafka."""
    sequences: Counter[TopicPartition] = Counter()
    begun = time.monotonic()
    with Client(ConnectionOptions(bootstrap_servers=bootstrap_servers)) as client:
        producer = init_producer(client, None, 0)
        for chunk in generate_orders(count):
            _write_chunk(client, producer, chunk, sequences)
            written[0] += chunk.num_rows
            ahead = written[0] / records_per_second - (time.monotonic() - begun)
            client.connections.pause(max(0.0, ahead))


def _write_chunk(
    client: Client, producer: ProducerIdentity, chunk: pa.RecordBatch, sequences: Counter[TopicPartition]
) -> None:
    columns = record_columns(chunk["value"], key=chunk["key"], default_timestamp_ms=time.time_ns() // 1_000_000)
    partitions, _ = partition_rows(columns, PARTITIONS)
    for index, rows in rows_of_partitions(partitions, PARTITIONS):
        partition = TopicPartition(TOPIC, index)
        for batch in encode(columns, rows):
            produce(client, {partition: seal(batch.data, producer, sequences[partition])})
            sequences[partition] += batch.record_count
