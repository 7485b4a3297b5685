"""A reader above its quota is slowed down by the broker, and reads everything all the same."""

from __future__ import annotations

import random
import subprocess
import time

from sparkonce.devbroker import DevBroker
from sparkonce.fetch import OffsetRange, ReadSettings
from sparkonce.model import TopicPartition
from tests.broker.fetch_samples import producer_of, rows_by_librdkafka, rows_by_us, send
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

CLIENT_ID = "slowed-down"
BYTES_PER_SECOND = 200_000
TOOL_SECONDS = 60


def set_quota(broker: DevBroker, client_id: str) -> None:
    command = broker.tool_command(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", broker.bootstrap_servers, "--alter"),
        *("--add-config", f"consumer_byte_rate={BYTES_PER_SECOND}"),
        *("--entity-type", "clients", "--entity-name", client_id),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_reader_above_its_quota(broker: DevBroker, topic: TopicFactory) -> None:
    partition = TopicPartition(topic(broker), 0)
    source = random.Random(3)
    producer = producer_of(broker, **{"batch.num.messages": 20})
    # Kafka allows ten seconds' worth at once before it slows anybody down.
    send(producer, partition.topic, [source.randbytes(10_000) for _ in range(300)])
    expected = rows_by_librdkafka(broker, partition.topic)
    set_quota(broker, CLIENT_ID)
    settings = ReadSettings(fetch_bytes=500_000, deadline_ms=30_000)
    with client_of(broker, client_id=CLIENT_ID) as slow, client_of(broker) as free:
        durations = []
        for client in (slow, free):
            began = time.monotonic()
            assert rows_by_us(client, OffsetRange(partition, 0, len(expected)), settings) == expected
            durations.append(time.monotonic() - began)
    assert durations[0] > 2 + durations[1]
