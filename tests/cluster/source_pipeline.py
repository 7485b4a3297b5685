"""Kafka to Kafka, exactly once, as a program of its own that kills itself where a test says.

`python -m tests.cluster.source_pipeline '{"…"}'` reads all that there is and ends, unless it dies in the callback of a
micro-batch: before the sink has written it, or after, in both cases before Spark has committed it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkonce import KafkaSink, KafkaSource
from sparkonce.spark.session import SHORT_LIVED, local_session
from tests.cluster.judge import ROOT, RUN_SECONDS


@dataclass(frozen=True)
class SourceJob:
    """What the program is told."""

    bootstrap_servers: str
    topic: str
    output: str
    checkpoint: str
    options: dict[str, Any] = field(default_factory=dict)
    connector: str | None = None
    """Jars of Spark's own connector: its source is read then, with its names of options."""
    offsets_group: str | None = None
    dies_before: int | None = None
    dies_after: int | None = None


class DyingSink(KafkaSink):
    """A sink that dies where the job says."""

    def __init__(self, job: SourceJob) -> None:
        super().__init__(
            job.bootstrap_servers, topic=job.output, transactional_id=job.output, offsets_group=job.offsets_group
        )
        self._job = job

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self._die_in(batch_id, self._job.dies_before)
        super().__call__(rows, batch_id)
        self._die_in(batch_id, self._job.dies_after)

    def _die_in(self, batch_id: int, last: int | None) -> None:
        if batch_id == last:
            os.kill(os.getpid(), signal.SIGKILL)


def run(job: SourceJob) -> int:
    """Runs the program to its end, whichever that is."""
    command = [sys.executable, "-m", "tests.cluster.source_pipeline", json.dumps(asdict(job))]
    return subprocess.run(command, cwd=ROOT, timeout=RUN_SECONDS, check=False).returncode


def main() -> None:
    job = SourceJob(**json.loads(sys.argv[1]))
    jars = {"spark.jars": job.connector} if job.connector else {}
    spark = local_session("source-pipeline", "local[2]", {**SHORT_LIVED, **jars})
    spark.sparkContext.setLogLevel("ERROR")
    rows = read_by_connector(spark, job) if job.connector else read_by_us(spark, job)
    DyingSink(job).start(rows.select("key", "value"), job.checkpoint, "available-now").awaitTermination()


def read_by_us(spark: SparkSession, job: SourceJob) -> DataFrame:
    return KafkaSource(job.bootstrap_servers, topics=job.topic, **job.options).stream(spark)


def read_by_connector(spark: SparkSession, job: SourceJob) -> DataFrame:
    options = {"kafka.bootstrap.servers": job.bootstrap_servers, "subscribe": job.topic, **job.options}
    return spark.readStream.format("kafka").options(**options).load()


if __name__ == "__main__":
    main()
