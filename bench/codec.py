"""Our codec beside confluent-kafka (librdkafka): the same records, the same broker, one core for the client.

Run by `make bench`. Only the ratios mean anything: both sides run in turns in one process, and the best of the rounds
counts for each.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from sparkonce.devbroker import DevBroker
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import Codec, decode, encode, read_headers, record_columns, record_count, seal
from sparkonce.wire import Client, FetchFrom, NewTopic, create_topics, fetch, init_producer, produce

TOPIC = TopicPartition("bench", 0)
RECORD_BYTES = 100
FACTOR_WANTED = 8
NOW_MS = time.time_ns() // 1_000_000


def main() -> None:
    """Starts a broker, measures in turns, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.records:,} records of {RECORD_BYTES} bytes, lz4, best of {options.rounds} rounds", flush=True)
    with DevBroker() as broker, Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
        pin(broker)
        create_topics(client, [NewTopic(TOPIC.topic, partitions=1), NewTopic("confluent", partitions=1)])
        report(measure(broker, client, make_values(options.records), options.rounds), options.records)


def pin(broker: DevBroker) -> None:
    """The client on one core, the broker on the others, if there are others."""
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first})
    for process in broker.processes:
        os.sched_setaffinity(process.pid, others or {first})


def make_values(count: int) -> list[bytes]:
    """JSON orders of exactly `RECORD_BYTES` bytes."""
    source = random.Random(5)
    start = b'{"id":%d,"user":"user-%d","amount":%d.50,"note":"'
    filled = (start % (n, source.randrange(10_000), source.randrange(900)) for n in range(count))
    return [text.ljust(RECORD_BYTES - 2, b"x") + b'"}' for text in filled]


def measure(broker: DevBroker, client: Client, values: list[bytes], rounds: int) -> dict[str, float]:
    """Seconds of each contender, the best of all rounds."""
    column = pa.array(values)
    sealed = encode_ours(column)
    write_ours(client, sealed)
    raw = [bytes(piece) for piece in read_ours(client, len(values))]
    contenders: dict[str, Callable[[], Any]] = {
        "confluent produce": lambda: produce_confluent(broker, values),
        "confluent consume": lambda: consume_confluent(broker, len(values)),
        "encode + lz4 + seal": lambda: encode_ours(column),
        "encode + lz4 + seal + send": lambda: write_ours(client, encode_ours(column)),
        "check + lz4 + decode": lambda: decode_ours(raw),
        "fetch + check + lz4 + decode": lambda: decode_ours(read_ours(client, len(values))),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for round_number in range(rounds):
        print(f"  round {round_number + 1} of {rounds}", flush=True)
        for name, contender in contenders.items():
            gc.collect()
            begun = time.perf_counter()
            measured = contender()
            # A consumer's first fetch takes half a second of joining; it says itself how long the records took.
            seconds = measured if isinstance(measured, float) else time.perf_counter() - begun
            best[name] = min(best[name], seconds)
    return best


def produce_confluent(broker: DevBroker, values: list[bytes]) -> None:
    """The usual loop, with settings for throughput. (`produce_batch` was measured to be slower.)"""
    producer: Any = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "linger.ms": 50,
            "queue.buffering.max.messages": len(values),
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    for value in values:
        producer.produce("confluent", value)
    if producer.flush(120) != 0:
        sys.exit("confluent-kafka could not deliver its records")


def consume_confluent(broker: DevBroker, count: int) -> float:
    """The fastest call that it has, many messages at once; gives the seconds from the first message on."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 10_000_000,
            "check.crcs": True,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC.topic, 0, OFFSET_BEGINNING)])
    found = len(consumer.consume(1, timeout=30))
    begun = time.perf_counter()
    read_bytes = 0
    while found < count:
        messages = consumer.consume(min(10_000, count - found), timeout=30)
        read_bytes += sum(len(message.value()) for message in messages)
        found += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def encode_ours(column: pa.Array) -> list[bytearray]:
    """Arrow column → batches, ready to send."""
    producer, sequence, sealed = ProducerIdentity(1, 0), 0, []
    for batch in encode(record_columns(column, default_timestamp_ms=NOW_MS), codec=Codec.lz4):
        sealed.append(seal(batch.data, producer, sequence))
        sequence += batch.record_count
    return sealed


def write_ours(client: Client, batches: list[bytearray]) -> None:
    """Sends batches, one request after the other, under a producer id of their own."""
    producer, sequence = init_producer(client, None, 0), 0
    for batch in batches:
        again = seal(batch, producer, sequence)
        sequence += record_count(batch)
        produce(client, {TOPIC: again})


def read_ours(client: Client, count: int) -> list[memoryview]:
    """Fetches the first `count` records as raw bytes."""
    pieces, offset = [], 0
    while offset < count:
        pieces.append(fetch(client, {TOPIC: FetchFrom(offset)})[TOPIC].records)
        offset = int(read_headers(pieces[-1]).last_offset[-1]) + 1
    return pieces


def decode_ours(pieces: list[Any]) -> int:
    """Raw bytes → Arrow columns."""
    return sum(batch.num_rows for piece in pieces for batch in decode(piece, read_headers(piece)))


def report(seconds: dict[str, float], count: int) -> None:
    """One line a contender; ours with the factor over the one that they are compared with."""
    print(f"\n  {'':<32}{'records/s':>12}{'factor':>9}")
    failed = []
    for name, taken in seconds.items():
        against = "confluent consume" if "decode" in name else "confluent produce"
        factor = seconds[against] / taken
        print(f"  {name:<32}{count / taken:>12,.0f}{factor:>8.1f}x")
        if name in ("encode + lz4 + seal", "check + lz4 + decode") and factor < FACTOR_WANTED:
            failed.append(name)
    verdict = f"not reached by {', '.join(failed)}" if failed else "reached"
    print(f"\n  wanted: at least {FACTOR_WANTED}x for the codec alone: {verdict}")


if __name__ == "__main__":
    main()
