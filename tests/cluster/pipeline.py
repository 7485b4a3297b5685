"""A streaming query with the sink, as a program of its own that a test can kill anywhere.

`python -m tests.cluster.pipeline '{"…"}'` reads files of `id,key` lines, one file a micro-batch, and writes them
exactly once. `fault` names a place in a micro-batch at which the program kills itself: the places are patched in here,
the product knows nothing of them.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from sparkonce import KafkaSink
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.spark import kafka_output, send_stage
from sparkonce.spark.send_stage import SendStage
from sparkonce.spark.session import SHORT_LIVED, local_session
from sparkonce.spark.share import Share
from sparkonce.transaction import KafkaTransaction, kafka_transaction
from sparkonce.wire import Client, Isolation, OffsetAt, connections, list_offsets

POINTS = (
    "before-init",
    "after-init",
    "first-produce",
    "last-produce",
    "after-offsets",
    "end-sent",
    "end-answered",
    "commit-log-written",
)
"""Where a driver can die, in the order of a micro-batch."""
SLOW_SECONDS = 9.0
TWO_SPARK_PARTITIONS = {"spark.sql.files.openCostInBytes": "1"}
"""Every file is cut in two on two cores."""
NEVER_SECONDS = 600.0
STANDS_STILL = "stands-still"
"""A file beside the checkpoint: a sending task has begun, and does not go on."""
BATCH_HEADER = "batch"
"""Every record says in which micro-batch it was written."""


@dataclass(frozen=True)
class Job:
    """What the program is told."""

    bootstrap_servers: str
    topic: str
    folder: str
    checkpoint: str
    master: str = "local[2]"
    fault: str | None = None
    fault_batch: int = 0
    query: str = "plain"
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    transactional_id: str = "pipeline"

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FaultySink(KafkaSink):
    """A sink that says what it did, and dies where the job says."""

    def __init__(self, job: Job) -> None:
        options = {"topic": job.topic, "transactional_id": job.transactional_id, **job.options}
        super().__init__(job.bootstrap_servers, **options)
        self._job = job

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        armed = batch_id == self._job.fault_batch
        if batch_id == self._job.fault_batch + 1 and self._job.fault == "commit-log-written":
            die()
        if armed and self._job.fault is not None and self._job.fault != "commit-log-written":
            arm(self._job.fault, self._job)
        header = sql.struct(sql.lit(BATCH_HEADER).alias("key"), sql.lit(str(batch_id)).cast("binary").alias("value"))
        super().__call__(rows.withColumn("headers", sql.array(header)), batch_id)
        print(f"batch {batch_id} {self.last_receipt}", flush=True)


def arm(fault: str, job: Job) -> None:
    """Puts the killing into its place."""
    if fault in ("before-init", "after-init"):
        # The claim of the first batch; a later one is made to ask for a new epoch even if it has one.
        patch(kafka_transaction, "init_producer", lambda real: _dying(real, before=fault == "before-init"))
        patch(KafkaTransaction, "_epoch_is_fresh", lambda _: property(lambda _: False, lambda *_: None))
    elif fault == "first-produce":
        patch(kafka_output, "collect", lambda real: _watched(real, job))
    elif fault in ("last-produce", "after-offsets"):
        patch(KafkaTransaction, "pre_commit", lambda real: _dying(real, before=fault == "last-produce"))
    elif fault == "end-sent":
        patch(connections.Connections, "wait_any", _dying_before_the_end)
    elif fault == "end-answered":
        patch(kafka_transaction, "end_transaction", lambda real: _dying(real, before=False))
    elif fault == "sleep-before-end":
        patch(KafkaTransaction, "pre_commit", lambda real: _first(real, lambda: os.kill(os.getpid(), signal.SIGSTOP)))
    elif fault in ("stand-still", "stand-still-without-grants"):
        stands_still, are_granted = str(Path(job.checkpoint).with_name(STANDS_STILL)), fault == "stand-still"
        patch(
            kafka_output,
            "SendStage",
            lambda real: lambda *given: StandingStill(real(*given), stands_still, are_granted),
        )
    elif fault == "slow":
        patch(KafkaTransaction, "pre_commit", lambda real: _first(real, lambda: time.sleep(SLOW_SECONDS)))
    else:
        raise ValueError(fault)


def patch(place: Any, name: str, change: Callable[[Any], Any]) -> None:
    setattr(place, name, change(getattr(place, name, None)))


@dataclass(frozen=True)
class StandingStill:
    """A sending stage whose first attempt sends one batch and then stands still. It patches the worker that it runs in,
    where Spark brings this class by value, since it is one of the main module.
    """

    stage: SendStage
    stands_still: str
    are_granted: bool

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self.are_granted:
            patch(send_stage, "ask_for_share", lambda _: everybody_sends)
        patch(Share, "batches", lambda real: _standing_still(real, Path(self.stands_still)))
        return self.stage(arrow_batches)


def everybody_sends(*_: object) -> Any:
    return nullcontext(SimpleNamespace(finished_receipts=None, report=lambda _: None))


def _standing_still(batches: Callable[[Share], Iterator[Any]], stands_still: Path) -> Callable[[Share], Iterator[Any]]:
    def wrapped(share: Share) -> Iterator[Any]:
        for number, batch in enumerate(batches(share)):
            if number == 1 and not stands_still.exists():
                stands_still.touch()
                time.sleep(NEVER_SECONDS)
            yield batch

    return wrapped


def _dying_before_the_end(real: Callable[..., Any]) -> Callable[..., Any]:
    """EndTxn is on its way, its answer is never read."""

    def wait_any(self: connections.Connections, pendings: Any, deadline: Any) -> None:
        asked = list(pendings)
        if any(pending.api.name == "EndTxn" for pending in asked):
            die()
        real(self, asked, deadline)

    return wait_any


def _dying(function: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            die()
        function(*arguments, **options)
        die()

    return wrapped


def _first(function: Callable[..., Any], act: Callable[[], object]) -> Callable[..., Any]:
    """Does something before the first call."""
    acted: list[bool] = []

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not acted:
            acted.append(True)
            act()
        return function(*arguments, **options)

    return wrapped


def _watched(function: Callable[..., Any], job: Job) -> Callable[..., Any]:
    """Dies as soon as a record of the batch is in Kafka, committed or not."""

    def watch(before: int) -> None:
        with Client(ConnectionOptions(bootstrap_servers=job.bootstrap_servers)) as client:
            while written(client, job.topic) <= before:
                pass
            die()

    def wrapped(*arguments: Any) -> Any:
        with Client(ConnectionOptions(bootstrap_servers=job.bootstrap_servers)) as client:
            before = written(client, job.topic)
        threading.Thread(target=watch, args=(before,), daemon=True).start()
        return function(*arguments)

    return wrapped


def written(client: Client, topic: str) -> int:
    """How many offsets the topic has given out."""
    count = len(client.metadata([topic]).topics[topic].partitions)
    partitions = {TopicPartition(topic, index): OffsetAt.LATEST for index in range(count)}
    return sum(found.offset for found in list_offsets(client, partitions, Isolation.READ_UNCOMMITTED).values())


def rotated(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in arrow_batches:
        first = random.randrange(batch.num_rows)
        yield pa.concat_batches([batch.slice(first), batch.slice(0, first)])


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda lines: lines.selectExpr("key", "id AS value"),
    # A column that is another one whenever the stage is computed again.
    "nondeterministic": lambda lines: lines.selectExpr(
        "key", "id AS value", "CAST(FLOOR(RAND() * 3) AS INT) AS partition"
    ),
    # The same rows in another order: batches of the same sizes with other records in them.
    "rotated": lambda lines: lines.mapInArrow(rotated, lines.schema).selectExpr("key", "id AS value"),
    "deduplicated": lambda lines: lines.dropDuplicates(["id"]).selectExpr("key", "id AS value"),
    "counted": lambda lines: lines.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value"),
}


def main() -> None:
    """Runs until all files are written."""
    job = Job(**json.loads(sys.argv[1]))
    logging.getLogger("sparkonce").setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
    spark = local_session("pipeline", job.master, {**SHORT_LIVED, **TWO_SPARK_PARTITIONS, **job.settings})
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.option("maxFilesPerTrigger", 1).schema("id STRING, key STRING").csv(job.folder)
    sink, rows = FaultySink(job), QUERIES[job.query](files)
    writer = rows.writeStream.foreachBatch(sink).outputMode("update" if job.query == "counted" else "append")
    query = writer.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
