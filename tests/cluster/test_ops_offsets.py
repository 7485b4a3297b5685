"""Spark goes on from a checkpoint whose offsets were set by hand, and Kafka's marker still fits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkonce import KafkaSink, KafkaSource
from sparkonce.devbroker import DevBroker
from sparkonce.fetch.checkpoint import OFFSETS, fingerprint
from sparkonce.model import TopicPartition
from sparkonce.ops import Query, life
from sparkonce.ops.offset_changes import parse_wish
from sparkonce.ops.offsets import carry_out, plan, require_stopped
from tests.broker.ops_samples import fill, query_on
from tests.broker.transaction_samples import new_id
from tests.broker.wire_samples import client_of, values_in
from tests.conftest import TopicFactory


def run_once(spark: SparkSession, query: Query, broker: DevBroker, source: str, sink: str) -> list[bytes]:
    """Everything that is there now; then what the output has."""
    rows = KafkaSource(broker.bootstrap_servers, topics=source, start="earliest").stream(spark)
    target = KafkaSink(broker.bootstrap_servers, topic=sink, transactional_id=query.transactional_id, select=["value"])
    running = target.start(rows, checkpoint=query.checkpoint, trigger="available-now")
    assert running.awaitTermination(180)
    target.close()
    return values_in(broker, sink, 1)


def move(query: Query, wish: str) -> tuple[str, ...]:
    """What the command does."""
    made = plan(query, [parse_wish(wish)], None)
    require_stopped(query, owner_gone=False)
    carry_out(query, made)
    return made.steps


def plan_by_hand(checkpoint: Path, tp: TopicPartition, end: int) -> None:
    """The next micro-batch as Spark leaves it when it dies before the commit."""
    newest, _ = fingerprint(checkpoint)
    version, metadata, source = (checkpoint / OFFSETS / str(newest)).read_text().split("\n")
    planned = json.loads(metadata) | {"batchTimestampMs": int(time.time() * 1000)}
    progress = json.loads(source)
    progress["end"][tp.topic][str(tp.partition)] = end
    text = "\n".join([version, json.dumps(planned), json.dumps(progress)])
    (checkpoint / OFFSETS / str(newest + 1)).write_text(text)


def test_back_forward_and_over_a_planned_batch(
    spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "WATCH_SECONDS", 0.2)
    source, sink = topic(broker), topic(broker)
    place = TopicPartition(source, 0)
    query = query_on(broker.bootstrap_servers, source, sink, new_id(), tmp_path / "checkpoint")
    first = [str(number).encode() for number in range(10)]
    with client_of(broker) as client:
        fill(client, place, 10)
        assert run_once(spark, query, broker, source, sink) == first

        assert len(move(query, f"{source}:0=7")) == 2
        again = [*first, *first[7:]]
        assert run_once(spark, query, broker, source, sink) == again

        fill(client, place, 5)
        plan_by_hand(Path(query.checkpoint), place, 15)
        steps = move(query, f"{source}:0=14")
        assert any("remove batch" in step for step in steps)
        assert run_once(spark, query, broker, source, sink) == [*again, b"4"]
