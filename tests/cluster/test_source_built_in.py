"""Spark's built-in Kafka source and ours: the same rows, and a query that changes over from one to the other."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from tools.built_in import connector

from sparkonce.cli.main import cli
from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from tests.broker.fetch_samples import Row, producer_of, send, send_transactions, wait_for_markers
from tests.broker.wire_samples import client_of, values_in
from tests.cluster.test_pipeline_spark import COPY, file_of, run_once
from tests.cluster.test_source_equality import CODECS, compacted_topic, rows_by_spark
from tests.cluster.test_source_spark import options_of
from tests.conftest import TopicFactory

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
JOB = Path(__file__).with_name("built_in_job.py")


def run_built_in(job: dict[str, Any]) -> int:
    command = [sys.executable, str(JOB), json.dumps({**job, "connector": connector()})]
    return subprocess.run(command, check=False, timeout=600).returncode


def rows_by_built_in(broker: DevBroker, name: str, folder: Path) -> list[Row]:
    options = options_of(broker, name, includeHeaders="true", **{"kafka.isolation.level": "read_committed"})
    output = folder / "rows"
    assert run_built_in({"mode": "read", "options": options, "output": str(output)}) == 0
    return sorted(_row(*json.loads(line)) for line in output.read_text().splitlines())


def _row(
    partition: int,
    offset: int,
    key: str | None,
    value: str | None,
    timestamp: int,
    kind: int,
    headers: list[tuple[str, str | None]] | None,
) -> Row:
    return Row(
        partition,
        offset,
        _bytes(key),
        _bytes(value),
        timestamp,
        kind,
        tuple((name, _bytes(content)) for name, content in headers or ()),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_rows_are_equal(spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    """All codecs, headers, nulls, aborted transactions, records of ten megabytes."""
    plain = topic(broker, partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        dice = random.Random(partition)
        values = [None if n % 11 == 0 else dice.randbytes(n % 97) + b"text " * (n % 800) for n in range(1_500)]
        send(producer_of(broker, **{"compression.type": codec}), plain, values, partition)
    transactional = topic(broker, partitions=2)
    send_transactions(broker, transactional, [True, False, False, True], partitions=2, each=50)
    with client_of(broker) as client:
        for partition in (0, 1):
            wait_for_markers(client, TopicPartition(transactional, partition))
    large = topic(broker, config={"max.message.bytes": "12000000"})
    send(producer_of(broker, **{"message.max.bytes": 12_000_000}), large, [random.Random(1).randbytes(10_000_000)])
    for name in (plain, transactional, large):
        theirs = rows_by_built_in(broker, name, tmp_path)
        assert theirs
        assert sorted(rows_by_spark(spark, broker, name)) == theirs


def test_rows_of_a_compacted_topic_are_equal(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = compacted_topic(broker, topic)

    def equal() -> bool:
        """The cleaner may run between the readers: two equal readings of ours frame theirs."""
        before = rows_by_spark(spark, broker, name)
        theirs = rows_by_built_in(broker, name, tmp_path)
        after = rows_by_spark(spark, broker, name)
        assert before != after or theirs == after
        return before == after

    assert wait_until(equal, Deadline.after(300))


@pytest.mark.parametrize("die_in_batch", [None, 2])
def test_a_query_goes_on_where_the_built_in_source_stopped(
    die_in_batch: int | None, spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name, first, second = topic(broker, partitions=3), 3_000, 1_000
    producer = producer_of(broker)

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.produce(name, b"%d" % number, partition=number % 3)
        producer.flush(30)

    produce(range(first))
    options = options_of(broker, name, startingOffsets="earliest", maxOffsetsPerTrigger="700")
    output, checkpoint = tmp_path / "batches", str(tmp_path / "checkpoint")
    job = {"mode": "stream", "options": options, "output": str(output), "checkpoint": checkpoint}
    assert run_built_in({**job, "die_in_batch": die_in_batch}) == (0 if die_in_batch is None else 1)
    theirs = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(theirs) == (5 if die_in_batch is None else die_in_batch)
    produce(range(first, first + second))
    ours: dict[int, list[str]] = {}

    def note(rows: DataFrame, batch_id: int) -> None:
        ours[batch_id] = [row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect()]

    stream = spark.readStream.format("sparkonce").options(**options).load()
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert min(ours) == len(theirs)
    everything = [int(value) for batch in [*theirs, *ours.values()] for value in batch]
    assert sorted(everything) == list(range(first + second))
    if die_in_batch is not None:
        # The micro-batch that was planned there, with the offsets that were planned there.
        planned = json.loads((tmp_path / "checkpoint" / "offsets" / str(die_in_batch)).read_text().splitlines()[-1])
        read = sum(int(end) for end in planned[name].values()) - sum(len(batch) for batch in theirs)
        assert len(ours[die_in_batch]) == read


def test_a_pipeline_goes_on_after_migrate(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target, count = topic(broker, partitions=3), topic(broker), 900
    producer = producer_of(broker)
    send(producer, source, [b"%d" % number for number in range(count)])
    options = options_of(broker, source, startingOffsets="earliest", maxOffsetsPerTrigger="400")
    old, output = tmp_path / "old", tmp_path / "batches"
    assert run_built_in({"mode": "stream", "options": options, "output": str(output), "checkpoint": str(old)}) == 0
    send(producer, source, [b"%d" % number for number in range(count, 2 * count)])
    file = file_of(tmp_path, broker, source, target, transform=COPY)
    told = CliRunner().invoke(cli, ["migrate", str(file), "--from-checkpoint", str(old), "--yes"])
    assert told.exit_code == 0, told.output
    assert f"goes on with batch {len(output.read_text().splitlines())}" in told.output
    run_once(spark, file)
    assert sorted(map(int, values_in(broker, target, 1))) == list(range(count, 2 * count))
