"""A micro-batch whose marker Kafka has forgotten: a person decides, once."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from sparkonce.cli.recover import assuming, batch_in_doubt
from sparkonce.devbroker import DevBroker
from sparkonce.errors import MissingMarkerError, UsageError
from sparkonce.fetch.checkpoint import read_checkpoint
from sparkonce.pipeline import load
from sparkonce.pipeline.running import Running
from sparkonce.transaction import marker_group
from tests.broker.wire_samples import values_in
from tests.cluster.test_pipeline_spark import COPY, COUNT, file_of, orders
from tests.conftest import TopicFactory

MONTH_MS = 30 * 24 * 3_600_000


def run(spark: SparkSession, file: Path, assume: str | None = None) -> None:
    pipeline = load(file) if assume is None else assuming(load(file), assume)
    Running(spark, pipeline, once=True).wait(lambda _: None, threading.Event(), threading.Event())


def ended_a_month_ago(checkpoint: Path) -> None:
    """As if the driver had died then, after its transaction was committed and before Spark noted it."""
    (checkpoint / "commits" / "0").unlink()
    log = checkpoint / "offsets" / "0"
    lines = log.read_text().splitlines()
    told = json.loads(lines[1])
    lines[1] = json.dumps({**told, "batchTimestampMs": told["batchTimestampMs"] - MONTH_MS})
    log.write_text("\n".join(lines))
    for sums in checkpoint.rglob(".0.crc"):
        sums.unlink()


@pytest.mark.parametrize(("assume", "times"), [("committed", 1), ("not-committed", 2)])
def test_a_forgotten_marker(
    assume: str, times: int, spark: SparkSession, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    source, target = topic(broker), topic(broker)
    file = file_of(tmp_path, broker, source, target, transform=COPY)
    checkpoint = tmp_path / "checkpoints" / "orders"
    orders(broker, source)
    run(spark, file)
    with pytest.raises(UsageError, match="nothing is in doubt"):
        batch_in_doubt(read_checkpoint(str(checkpoint)))
    ended_a_month_ago(checkpoint)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for forgotten in admin.delete_consumer_groups([marker_group(target)]).values():
        forgotten.result(30)
    with pytest.raises(MissingMarkerError, match="batch 0"):
        run(spark, file)
    assert len(values_in(broker, target, 1)) == COUNT
    assert batch_in_doubt(read_checkpoint(str(checkpoint))) == 0
    run(spark, file, assume)
    assert len(values_in(broker, target, 1)) == times * COUNT
    orders(broker, source, COUNT)
    run(spark, file)
    assert len(values_in(broker, target, 1)) == (times + 1) * COUNT
