"""Our sink behind Spark's built-in Kafka source: every batch once, with the source's offsets in its transaction."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tools.built_in import connector

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.wire import committed_offsets
from tests.broker.fetch_samples import producer_of, send
from tests.broker.wire_samples import client_of, values_in
from tests.cluster.source_pipeline import SourceJob, run
from tests.conftest import TopicFactory

PARTITIONS, EACH, BATCH_ROWS = 2, 500, 300


@pytest.mark.timeout(600)
def test_a_driver_killed_before_and_after_a_commit(broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    source, target, group = topic(broker, partitions=PARTITIONS), topic(broker), f"group-{tmp_path.name}"
    producer = producer_of(broker)
    for index in range(PARTITIONS):
        send(producer, source, [b"%d" % number for number in range(index * EACH, (index + 1) * EACH)], index)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)}
    job = SourceJob(
        broker.bootstrap_servers,
        source,
        target,
        str(tmp_path / "checkpoint"),
        options,
        connector(),
        offsets_group=group,
    )
    partitions = [TopicPartition(source, index) for index in range(PARTITIONS)]
    with client_of(broker) as client:
        assert run(replace(job, dies_before=1)) == -signal.SIGKILL
        assert sum(found.offset for found in committed_offsets(client, group, partitions).values()) == BATCH_ROWS
        assert run(replace(job, dies_after=1)) == -signal.SIGKILL
        assert sum(found.offset for found in committed_offsets(client, group, partitions).values()) == 2 * BATCH_ROWS
        assert len(values_in(broker, target, 1)) == 2 * BATCH_ROWS
        assert run(job) == 0
        committed = committed_offsets(client, group, partitions)
    assert {partition: found.offset for partition, found in committed.items()} == dict.fromkeys(partitions, EACH)
    assert sorted(map(int, values_in(broker, target, 1))) == list(range(PARTITIONS * EACH))
