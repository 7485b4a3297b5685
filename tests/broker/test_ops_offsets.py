"""`sparkonce lag` and `sparkonce offsets` over a real broker, a pipeline file and a checkpoint as Spark writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.errors import FencedError
from sparkonce.fetch.checkpoint import read_checkpoint
from sparkonce.model import TopicPartition
from sparkonce.ops import life
from sparkonce.wire import GroupOffset, commit_offsets, committed_offsets
from tests.broker.ops_samples import fill, run, write_log, write_pipeline
from tests.broker.transaction_samples import driver, new_id
from tests.broker.wire_samples import client_of
from tests.conftest import TopicFactory

QUERY = "query-of-host-a"
RECORDS = 10


@dataclass(frozen=True)
class Copy:
    """A pipeline that has read the first micro-batches of a topic with two partitions."""

    broker: DevBroker
    file: Path
    source: str
    sink: str
    name: str
    topic_ids: dict[str, str]

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.source, 0)

    @property
    def second(self) -> TopicPartition:
        return TopicPartition(self.source, 1)

    @property
    def checkpoint(self) -> Path:
        return self.file.parent / "checkpoint"

    def log(self, planned: int, committed: int) -> None:
        """Micro-batch n ends at n + 1 and 2 · (n + 1)."""
        ends = {n: {self.first: n + 1, self.second: 2 * (n + 1)} for n in range(planned + 1)}
        write_log(self.checkpoint, QUERY, ends, committed, self.topic_ids)

    def set(self, *wishes: str, yes: bool = True) -> Any:
        flags = [part for wish in wishes for part in ("--set", wish)]
        return run("offsets", self.file, *flags, *(["--yes"] if yes else []))

    def next_start(self) -> list[int]:
        found = read_checkpoint(str(self.checkpoint)).next_start()
        return [found[self.first], found[self.second]]


@pytest.fixture
def copy(broker: DevBroker, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    monkeypatch.setattr(life, "WATCH_SECONDS", 0.3)
    source, sink, name = topic(broker, partitions=2), topic(broker), new_id()
    file = write_pipeline(tmp_path, broker.bootstrap_servers, source, sink, name, f'offsets_group = "{name}-shown"')
    with client_of(broker) as client:
        fill(client, TopicPartition(source, 0), RECORDS)
        fill(client, TopicPartition(source, 1), RECORDS)
        topic_id = str(client.metadata([source]).topics[source].topic_id)
    return Copy(broker, file, source, sink, name, {source: topic_id})


def test_the_lag_of_a_checkpoint_and_of_its_group(copy: Copy) -> None:
    copy.log(planned=3, committed=2)
    with client_of(copy.broker) as client:
        commit_offsets(client, f"{copy.name}-shown", {copy.first: GroupOffset(2)})
    answer = run("lag", copy.file, "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["total"] == (RECORDS - 3) + (RECORDS - 6)
    assert (found["batch_id"], found["unfinished_batch_id"]) == (2, 3)
    assert 0 <= found["behind_ms"] < 600_000
    first, second = found["partitions"]
    assert (first["current"], first["end"], first["lag"], first["groups"]) == (3, 10, 7, {f"{copy.name}-shown": 2})
    assert (second["current"], second["lag"], second["groups"]) == (6, 4, {})
    text = run("lag", copy.file).stdout
    assert "CURRENT is from batch 2, the newest that Spark has committed." in text
    assert "In all: 11 offsets" in text


def test_the_lag_of_a_query_that_never_ran(copy: Copy) -> None:
    answer = run("lag", copy.file)
    assert answer.exit_code == 0
    assert "no micro-batch is committed yet" in answer.stdout
    assert "In all: unknown." in answer.stdout


def test_a_checkpoint_that_only_spark_can_read(copy: Copy) -> None:
    copy.file.write_text(copy.file.read_text().replace('"checkpoint"', '"hdfs://name/checkpoint"'))
    with client_of(copy.broker) as client:
        commit_offsets(client, f"{copy.name}-shown", {copy.first: GroupOffset(4)})
    text = " ".join(run("lag", copy.file).stdout.split())
    assert (
        f"CURRENT is from group {copy.name}-shown, since the checkpoint hdfs://name/checkpoint is not on a local"
        in text
    )
    assert "In all: 6 offsets" in text
    refused = copy.set(f"{copy.source}:0=1")
    assert refused.exit_code == 1
    assert "is not on a local folder" in refused.output


def test_offsets_are_shown(copy: Copy) -> None:
    copy.log(planned=2, committed=2)
    found = json.loads(run("offsets", copy.file, "--json").stdout)
    assert [one["next_start"] for one in found["partitions"]] == [3, 6]
    assert [one["latest"] for one in found["partitions"]] == [RECORDS, RECORDS]
    assert "The next start begins where batch 2 ended." in run("offsets", copy.file).stdout


def test_a_stopped_query_is_moved_and_its_driver_fenced(copy: Copy) -> None:
    with driver(copy.broker, copy.name, TopicPartition(copy.sink, 0)) as one:
        one.transaction.claim(60_000)
        for number in range(3):
            assert one.run(number, {TopicPartition(copy.sink, 0): [b"x"]})
        copy.log(planned=2, committed=2)
        asked = copy.set(f"{copy.source}:0=1", yes=False)
        assert asked.exit_code == 1
        assert f"{copy.first}  3 → 1: 2 offsets are read again" in " ".join(asked.output.split()).replace(
            " 3 →", "  3 →"
        )
        assert copy.next_start() == [3, 6]
        done = copy.set(f"{copy.source}:0=1", f"{copy.source}:1=latest")
        assert done.exit_code == 0, done.output
        assert copy.next_start() == [1, RECORDS]
        with pytest.raises(FencedError, match="sparkonce offsets --set"):
            one.transaction.require_id()
    same = copy.set(f"{copy.source}:0=1")
    assert "as you want them" in same.output


def test_a_planned_batch_that_is_not_in_kafka_is_dropped(copy: Copy) -> None:
    with driver(copy.broker, copy.name, TopicPartition(copy.sink, 0)) as one:
        one.transaction.claim(60_000)
        assert one.run(0, {TopicPartition(copy.sink, 0): [b"x"]})
    copy.log(planned=1, committed=0)
    done = copy.set(f"{copy.source}=earliest")
    assert done.exit_code == 0, done.output
    assert "remove batch 1 from the offset log" in " ".join(done.output.split())
    assert copy.next_start() == [0, 0]
    assert not (copy.checkpoint / "offsets" / "1").exists()


def test_a_planned_batch_that_is_in_kafka_is_kept(copy: Copy) -> None:
    with driver(copy.broker, copy.name, TopicPartition(copy.sink, 0)) as one:
        one.transaction.claim(60_000)
        for number in range(2):
            assert one.run(number, {TopicPartition(copy.sink, 0): [b"x"]})
    copy.log(planned=1, committed=0)
    refused = copy.set(f"{copy.source}=earliest")
    assert refused.exit_code == 1
    assert "batch 1 is in the output, but Spark has not noted it yet" in refused.output
    assert copy.next_start() == [1, 2]


def test_a_running_query_is_left_alone(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    home = TopicPartition(copy.sink, 0)
    copy.log(planned=2, committed=2)
    with driver(copy.broker, copy.name, home) as one:
        one.transaction.claim(60_000)
        for number in range(3):
            assert one.run(number, {home: [b"x"]})
        one.begin()
        one.send({home: [b"open"]})
        refused = copy.set(f"{copy.source}:0=1")
        assert refused.exit_code == 1
        assert "a transaction is open under" in refused.output
        one.transaction.abort()

        def goes_on(_seconds: float) -> None:
            one.run(3, {home: [b"more"]})

        monkeypatch.setattr(life, "sleep", goes_on)
        refused = copy.set(f"{copy.source}:0=1")
        assert refused.exit_code == 1
        assert "the epoch of the transactional id changed" in refused.output
    assert copy.next_start() == [3, 6]


def test_the_group_of_a_first_start(copy: Copy) -> None:
    group = f"{copy.name}-start"
    copy.file.write_text(copy.file.read_text().replace('start = "earliest"', f'start = {{ committed = "{group}" }}'))
    done = copy.set(f"{copy.source}:0=4", f"{copy.source}:1=earliest")
    assert done.exit_code == 0, done.output
    with client_of(copy.broker) as client:
        found = committed_offsets(client, group)
    assert {tp: value.offset for tp, value in found.items()} == {copy.first: 4, copy.second: 0}


def test_a_group_with_members_is_left_alone(copy: Copy) -> None:
    group = f"{copy.name}-shown"
    consumer: Any = Consumer({"bootstrap.servers": copy.broker.bootstrap_servers, "group.id": group})
    consumer.subscribe([copy.source])
    try:
        assert wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), Deadline.after(60))
        refused = run("offsets", copy.file, "--in", "group", "--set", f"{copy.source}=earliest", "--yes")
        assert refused.exit_code == 1
        assert f"group {group} has members" in refused.output
    finally:
        consumer.close()


def test_a_new_query_is_told_to_write_its_start_into_the_file(copy: Copy) -> None:
    refused = copy.set(f"{copy.source}:0=1")
    assert refused.exit_code == 1
    assert "start = { offsets" in refused.output
    wrong = copy.set("nonsense")
    assert wrong.exit_code == 1
    assert "is not TOPIC:PARTITION=OFFSET" in wrong.output
