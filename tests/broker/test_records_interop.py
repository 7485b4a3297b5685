"""Our record batches read by librdkafka and by Kafka's Java tools, and theirs by us, in every codec."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import Codec, decode, encode, read_headers, seal
from sparkonce.wire import Client, FetchFrom, OffsetAt, fetch, init_producer, list_offsets, produce
from tests.conftest import TopicFactory
from tests.unit.record_samples import Record, columns_of, rows_of

WAIT_SECONDS = 60
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Client]:
    with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as connected:
        yield connected


def sample_rows(count: int = 3_000) -> list[Record]:
    """Every shape a record can have, more than one batch of them."""
    source = random.Random(11)
    rows = []
    for number in range(count):
        key = source.choice([None, b"", f"key-{number % 7}".encode()])
        value = source.choice([None, b"", source.randbytes(source.randrange(300)), b"text " * 40])
        headers = [(f"h{i}", source.choice([None, b"", b"x" * 9])) for i in range(source.choice([0, 0, 1, 3]))]
        rows.append(Record(key, value, 1_700_000_000_000 + source.randrange(-5_000, 5_000), headers))
    return rows


def write_ours(client: Client, topic: str, rows: list[Record], codec: Codec) -> None:
    """One partition, several batches, with a producer id and sequences that the broker checks."""
    producer, sequence = init_producer(client, None, 0), 0
    batches = list(encode(columns_of(rows), codec=codec, batch_bytes_max=50_000))
    assert len(batches) > 3
    for batch in batches:
        produce(client, {TopicPartition(topic, 0): seal(batch.data, producer, sequence)})
        sequence += batch.record_count


def read_ours(client: Client, topic: str, codec: Codec) -> list[Record]:
    """Everything in the topic's one partition; the codec is checked, and that offsets are 0, 1, 2 …"""
    partition = TopicPartition(topic, 0)
    end = list_offsets(client, {partition: OffsetAt.LATEST})[partition].offset
    rows: list[Record] = []
    offset = 0
    while offset < end:
        records = fetch(client, {partition: FetchFrom(offset)})[partition].records
        headers = read_headers(records, partition)
        assert set(headers.codec) == {codec}
        for arrow_batch in decode(records, headers, source=partition):
            assert arrow_batch["offset"].to_pylist() == list(range(len(rows), len(rows) + arrow_batch.num_rows))
            rows += rows_of(arrow_batch)
        offset = int(headers.last_offset[-1]) + 1
    return rows


def read_by_librdkafka(broker: DevBroker, topic: str, count: int) -> list[Record]:
    consumer: Any = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "judge",
            "check.crcs": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([ConfluentPartition(topic, 0, OFFSET_BEGINNING)])
        rows: list[Record] = []
        while len(rows) < count:
            messages = consumer.consume(count - len(rows), timeout=WAIT_SECONDS)
            assert messages, f"librdkafka found {len(rows)} of {count} records"
            for message in messages:
                assert message.error() is None, message.error()
                rows.append(Record(message.key(), message.value(), message.timestamp()[1], message.headers() or []))
        assert consumer.consume(1, timeout=0.5) == []
        return rows
    finally:
        consumer.close()


@CODECS
def test_librdkafka_reads_what_we_write(broker: DevBroker, topic: TopicFactory, client: Client, codec: Codec) -> None:
    name, rows = topic(broker), sample_rows()
    write_ours(client, name, rows, codec)
    assert read_by_librdkafka(broker, name, len(rows)) == rows
    assert read_ours(client, name, codec) == rows


@CODECS
def test_we_read_what_librdkafka_writes(broker: DevBroker, topic: TopicFactory, client: Client, codec: Codec) -> None:
    name, rows = topic(broker), sample_rows()
    producer: Any = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec.name,
            "linger.ms": 20,
            "enable.idempotence": True,
        }
    )
    for row in rows:
        producer.produce(name, row.value, row.key, 0, timestamp=row.timestamp, headers=row.headers or None)
    assert producer.flush(WAIT_SECONDS) == 0
    assert read_ours(client, name, codec) == rows


@CODECS
def test_java_reads_what_we_write(broker: DevBroker, topic: TopicFactory, client: Client, codec: Codec) -> None:
    # The console consumer prints text, so these records are text.
    name = topic(broker)
    rows = [Record(b"k%d" % n, b"value %d " % n * 20, 1_000 + n, [("h", b"x%d" % n)]) for n in range(3_000)]
    write_ours(client, name, rows, codec)
    command = broker.tool_command(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", name, "--from-beginning"),
        *("--max-messages", str(len(rows)), "--timeout-ms", str(WAIT_SECONDS * 1000)),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true"),
    )
    answer = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_SECONDS, check=False)
    assert answer.returncode == 0, answer.stderr
    expected = [f"CreateTime:{1_000 + n}\tOffset:{n}\th:x{n}\tk{n}\t{f'value {n} ' * 20}" for n in range(len(rows))]
    assert answer.stdout.splitlines() == expected


@CODECS
def test_we_read_what_java_writes(broker: DevBroker, topic: TopicFactory, client: Client, codec: Codec) -> None:
    name = topic(broker)
    lines = [f"h:x{n}\tk{n}\t{f'value {n} ' * 20}" for n in range(3_000)]
    command = broker.tool_command(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", name, "--compression-codec", codec.name),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
    )
    text = "\n".join(lines) + "\n"
    subprocess.run(command, input=text, capture_output=True, text=True, timeout=2 * WAIT_SECONDS, check=True)
    found = read_ours(client, name, codec)
    assert [(row.key, row.value, row.headers) for row in found] == [
        (b"k%d" % n, b"value %d " % n * 20, [("h", b"x%d" % n)]) for n in range(3_000)
    ]
