"""One contender of `bench/spark.py`, as a process of its own. It imports nothing of ours unless it measures ours.

Prints one line of JSON: records a second of each micro-batch or read, the first ones left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

BUILT_IN = "built-in"
CORES = 2
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-Xss16m",
}
VALUE = """concat('{"id":', value, ',"user":"user-', value % 10007, '","amount":', value % 997, '.50,"note":"',
           repeat('x', 42), '"}')"""


@dataclass(frozen=True)
class Task:
    """What is measured."""

    flow: str
    """sink: generated rows → Kafka; copy: Kafka → Kafka; source: Kafka → nothing."""
    contender: str
    """built-in, or a guarantee of ours."""
    servers: str
    topic_in: str
    topic_out: str
    folder: str
    rows: int
    """Of a micro-batch."""
    rounds: int
    warm_up: int
    connector: str
    """The jars of Spark's own, unless this one is ours."""


def main() -> None:
    """Runs the task that the first argument describes."""
    task = Task(**json.loads(sys.argv[1]))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if task.connector:
        builder = builder.config("spark.jars", task.connector)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rates = read_rates(spark, task) if task.flow == "source" else stream_rates(spark, task)
    print(json.dumps(rates), flush=True)
    os._exit(0)  # The streaming query goes on otherwise.


def source_format(task: Task) -> str:
    return "kafka" if task.contender == BUILT_IN else "sparkonce"


def read_rates(spark: SparkSession, task: Task) -> list[float]:
    """Bounded reads of the whole topic."""
    rates = []
    for _ in range(task.rounds):
        options = {"kafka.bootstrap.servers": task.servers, "subscribe": task.topic_in}
        rows = spark.read.format(source_format(task)).options(**options).load()
        begun = time.monotonic()
        rows.write.format("noop").mode("overwrite").save()
        rates.append(task.rows / (time.monotonic() - begun))
    return rates[task.warm_up :]


def stream_rates(spark: SparkSession, task: Task) -> list[float]:
    """Micro-batches of a streaming query, by the time that Spark gives for each."""
    query = start(task, rows_of(spark, task))
    done: dict[int, float] = {}
    while len(done) < task.rounds:
        time.sleep(0.1)
        if query.exception() is not None:
            sys.exit(str(query.exception()))
        for progress in query.recentProgress:
            told = progress if isinstance(progress, dict) else json.loads(progress.json)
            if told["numInputRows"]:
                done[told["batchId"]] = 1000 * told["numInputRows"] / told["durationMs"]["triggerExecution"]
    return [done[batch] for batch in sorted(done)][task.warm_up :]


def rows_of(spark: SparkSession, task: Task) -> DataFrame:
    if task.flow == "copy":
        options = {
            "kafka.bootstrap.servers": task.servers,
            "subscribe": task.topic_in,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(task.rows),
        }
        if task.contender != BUILT_IN:
            options["maxPartitions"] = str(CORES)
        return spark.readStream.format(source_format(task)).options(**options).load().select("key", "value")
    generated = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", task.rows)
    return (
        generated.option("numPartitions", CORES)
        .load()
        .selectExpr("CAST(value % 10007 AS STRING) AS key", f"{VALUE} AS value")
    )


def start(task: Task, rows: DataFrame) -> Any:
    checkpoint = f"{task.folder}/checkpoint"
    if task.contender == BUILT_IN:
        writer = rows.writeStream.format("kafka").option("checkpointLocation", checkpoint)
        writer = writer.option("kafka.bootstrap.servers", task.servers).option("topic", task.topic_out)
        return writer.option("kafka.compression.type", "lz4").start()
    from sparkonce import KafkaSink  # noqa: PLC0415  Only where it is measured.

    identity = {"transactional_id": task.topic_out} if task.contender == "exactly-once" else {}
    sink = KafkaSink(task.servers, topic=task.topic_out, guarantee=task.contender, **identity)
    return sink.start(rows, checkpoint)


if __name__ == "__main__":
    main()
