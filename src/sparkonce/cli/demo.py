"""`sparkonce demo`: generated orders through a real broker and back, with the rates."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.devbroker import DevBroker
from sparkonce.errors import SparkonceError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import (
    Codec,
    decode,
    encode,
    partition_rows,
    read_headers,
    record_columns,
    record_count,
    rows_of_partitions,
    seal,
)
from sparkonce.wire import Client, FetchFrom, NewTopic, create_topics, fetch, init_producer, produce

TOPIC = "orders"
PARTITIONS = 4
CHUNK_ROWS = 100_000
FIRST_ORDER_MS = time.time_ns() // 1_000_000


@click.command()
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many orders.")
@click.option("--codec", default="lz4", show_default=True, type=click.Choice([codec.name for codec in Codec]))
def demo(records: int, codec: str) -> None:
    """Write generated orders to a Kafka started for this purpose, read them back, print the rates.

    \b
    Example:
      sparkonce demo --records 200000 --codec zstd
    """
    click.echo("» starting Apache Kafka …")
    begun = time.monotonic()
    with DevBroker() as broker, Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
        click.echo(f"  {broker.bootstrap_servers} answers after {time.monotonic() - begun:.1f} s")
        create_topics(client, [NewTopic(TOPIC, partitions=PARTITIONS)])
        click.echo(f"» generating {records:,} orders …")
        orders = pa.Table.from_batches(generate_orders(records))
        sent_bytes, write_seconds = write_orders(client, orders, Codec[codec])
        found, read_seconds = read_orders(client, records)
    if not same_orders(orders, found):
        raise SparkonceError(f"wrote {orders.num_rows:,} orders but read back {found.num_rows:,}, or other ones")
    raw_bytes = orders["key"].nbytes + orders["value"].nbytes
    click.echo(f"\n  {'':<36}{'records/s':>12}{'MB/s':>8}")
    for name, seconds in (
        ("encode, compress, seal, send", write_seconds),
        ("fetch, check, decompress, decode", read_seconds),
    ):
        click.echo(f"  {name:<36}{records / seconds:>12,.0f}{raw_bytes / seconds / 1e6:>8.0f}")
    click.echo(
        f"\n  {records:,} orders of {raw_bytes / records:.0f} bytes, {PARTITIONS} partitions, {codec}: ", nl=False
    )
    click.echo(f"{sent_bytes / records:.1f} bytes each on the wire")
    click.secho(f"  {found.num_rows:,} read back, equal to what was written, each user's in order", fg="green")


def generate_orders(count: int) -> Iterator[pa.RecordBatch]:
    """Orders as key, value (JSON) and timestamp; the same ones each time."""
    for first in range(0, count, CHUNK_ROWS):
        number = np.arange(first, min(first + CHUNK_ROWS, count))
        user = pa.array((number * 7_919) % 10_007).cast(pa.string())
        parts = ['{"id":', pa.array(number).cast(pa.string()), ',"user":"user-', user, '","amount":']
        parts += [pa.array(number % 997).cast(pa.string()), '.50,"currency":"EUR","note":"an order of the demo"}']
        value = pc.binary_join_element_wise(*parts, "")
        key = pc.binary_join_element_wise("user-", user, "")
        timestamp = pa.array(FIRST_ORDER_MS + number, pa.timestamp("ms", "UTC"))
        yield pa.RecordBatch.from_arrays([key, value, timestamp], ["key", "value", "timestamp"])


def write_orders(client: Client, orders: pa.Table, codec: Codec) -> tuple[int, float]:
    """Sends the orders to the topic, each partition's batches in order; gives the bytes sent and the seconds."""
    begun = time.monotonic()
    sent_bytes = sent_records = 0
    producer = init_producer(client, None, 0)
    sequences: Counter[TopicPartition] = Counter()
    for chunk in orders.to_batches():
        queues = _encoded(chunk, producer, sequences, codec)
        while queues:
            request = {partition: queue[0] for partition, queue in queues.items()}
            produce(client, request)
            sent_bytes += sum(map(len, request.values()))
            queues = {partition: queue[1:] for partition, queue in queues.items() if len(queue) > 1}
        sent_records += chunk.num_rows
        _progress("writing", sent_records, orders.num_rows, begun)
    return sent_bytes, time.monotonic() - begun


def _encoded(
    chunk: pa.RecordBatch, producer: ProducerIdentity, sequences: Counter[TopicPartition], codec: Codec
) -> dict[TopicPartition, list[bytearray]]:
    columns = record_columns(
        chunk["value"], key=chunk["key"], timestamp=chunk["timestamp"], default_timestamp_ms=FIRST_ORDER_MS
    )
    partitions, _ = partition_rows(columns, PARTITIONS)
    queues: dict[TopicPartition, list[bytearray]] = {}
    for index, rows in rows_of_partitions(partitions, PARTITIONS):
        partition = TopicPartition(TOPIC, index)
        for batch in encode(columns, rows, codec=codec):
            queues.setdefault(partition, []).append(seal(batch.data, producer, sequences[partition]))
            sequences[partition] += record_count(batch.data)
    return queues


def read_orders(client: Client, expected: int) -> tuple[pa.Table, float]:
    """Reads all partitions from their beginning until the expected number is there; gives them and the seconds."""
    begun = time.monotonic()
    offsets = {TopicPartition(TOPIC, index): 0 for index in range(PARTITIONS)}
    batches: list[pa.RecordBatch] = []
    rows = 0
    while rows < expected:
        wanted = {partition: FetchFrom(offset) for partition, offset in offsets.items()}
        before = dict(offsets)
        for partition, fetched in fetch(client, wanted).items():
            headers = read_headers(fetched.records, partition)
            batches += decode(fetched.records, headers, ~headers.is_control, source=partition)
            if len(headers):
                offsets[partition] = int(headers.last_offset[-1]) + 1
        if offsets == before:
            break
        rows = sum(batch.num_rows for batch in batches)
        _progress("reading", rows, expected, begun)
    return pa.Table.from_batches(batches), time.monotonic() - begun


def same_orders(written: pa.Table, found: pa.Table) -> bool:
    """Whether each key has the same values, in the same order."""
    if found.num_rows != written.num_rows:
        return False
    expected, actual = (table.select(["key", "value"]).cast(_KEY_VALUE) for table in (written, found))
    # A stable sort by key keeps each key's order; all records of a key are in one partition.
    return bool(_sorted_by_key(actual).equals(_sorted_by_key(expected)))


_KEY_VALUE = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def _sorted_by_key(table: pa.Table) -> pa.Table:
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    return numbered.sort_by([("key", "ascending"), ("row", "ascending")]).drop_columns(["row"]).combine_chunks()


def _progress(doing: str, done: int, total: int, begun: float) -> None:
    finished = done >= total
    if finished or sys.stdout.isatty():
        rate = done / max(time.monotonic() - begun, 1e-9)
        click.echo(f"\r» {doing} {done:,} of {total:,} records, {rate:,.0f} a second   ", nl=finished)
