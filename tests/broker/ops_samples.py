"""Queries for the tests of operations: a pipeline's values over a real broker, and checkpoints as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from sparkonce.cli.main import cli
from sparkonce.fetch import TopicNames
from sparkonce.model import TopicPartition
from sparkonce.ops import KafkaSinkTarget, Query, SourceTarget
from sparkonce.ops.doctor import Finding, Verdict, examine, gather
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, produce
from tests.broker.wire_samples import record_batch

BATCH_BYTES = 1_048_588
TIMEOUT_MS = 60_000


def query_on(servers: str, source: str, sink: str, transactional_id: str, checkpoint: Path, **more: Any) -> Query:
    """A query that copies a topic, exactly once."""
    properties: dict[str, str] = more.pop("properties", {})
    connection = ConnectionOptions.from_properties(servers, properties)
    target = KafkaSinkTarget(
        connection=connection,
        topic=sink,
        transactional_id=transactional_id,
        transaction_timeout_ms=more.pop("transaction_timeout_ms", TIMEOUT_MS),
        batch_bytes=BATCH_BYTES,
        offsets_group=more.pop("offsets_group", None),
    )
    return Query(
        name="copy",
        checkpoint=str(checkpoint),
        source=SourceTarget(connection=connection, subscription=TopicNames((source,)), **more),
        sink=target,
    )


def write_pipeline(folder: Path, servers: str, source: str, sink: str, transactional_id: str, more: str = "") -> Path:
    """A pipeline file."""
    file = folder / "copy.toml"
    file.write_text(f"""
name = "copy"
checkpoint = "checkpoint"

[source]
bootstrap_servers = "{servers}"
topics = ["{source}"]
start = "earliest"

[[sink]]
type = "kafka"
topic = "{sink}"
transactional_id = "{transactional_id}"
select = ["key", "value"]
{more}
""")
    return file


def write_log(
    checkpoint: Path,
    query_id: str,
    ends: Mapping[int, Mapping[TopicPartition, int]],
    committed: int,
    topic_ids: Mapping[str, str],
) -> None:
    """Spark's logs with these micro-batches, of which those up to `committed` are."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
    for number, end in ends.items():
        (checkpoint / "offsets" / str(number)).write_text(log_entry(end, topic_ids))
        if number <= committed:
            (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def log_entry(end: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> str:
    """One entry of the offset log, as our source gives it."""
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in end.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    start = {topic: dict.fromkeys(partitions, 0) for topic, partitions in topics.items()}
    source = json.dumps({"version": 1, "start": start, "end": topics, "topicIds": dict(topic_ids)})
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1}), source])


def fill(client: Client, tp: TopicPartition, records: int) -> None:
    """Plain records in one topic partition, one record batch each."""
    for number in range(records):
        produce(client, {tp: record_batch([str(number).encode()])})


def run(*arguments: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def findings(query: Query, **how: Any) -> list[Finding]:
    """What the doctor says of a query."""
    return examine(gather(query, **how))


def said(found: list[Finding], verdict: Verdict, *words: str) -> Finding:
    """The one finding with this verdict and these words."""
    chosen = [one for one in found if one.verdict is verdict and all(word in one.message for word in words)]
    assert len(chosen) == 1, [f"{one.verdict.value}: {one.message}" for one in found if one.verdict is not Verdict.OK]
    return chosen[0]


def problems(found: list[Finding]) -> list[str]:
    """The messages of all problems."""
    return [one.message for one in found if one.verdict is Verdict.PROBLEM]
