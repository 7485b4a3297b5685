"""A streaming query into Kafka, PostgreSQL and MariaDB, as a program of its own that a test can kill anywhere.

`python -m tests.servers.atomic_pipeline '{"…"}'` reads files of `id,key` lines, one file a micro-batch.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from sparkonce import AtomicSinks, KafkaSink, MariaDBSink, PostgresSink
from sparkonce.spark.session import SHORT_LIVED, local_session


@dataclass(frozen=True)
class Job:
    """What the program is told."""

    bootstrap_servers: str
    topic: str
    postgres: str
    mariadb: str
    table: str
    folder: str
    checkpoint: str
    master: str = "local[2]"
    settings: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(asdict(self))


class TellingSinks(AtomicSinks):
    """Sinks that say what they did, and give each row the number of its micro-batch."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        super().__call__(rows.withColumn("batch", sql.lit(batch_id)), batch_id)
        print(f"batch {batch_id} {self.last_receipt}", flush=True)  # noqa: T201


def main() -> None:
    """Runs until all files are written."""
    job = Job(**json.loads(sys.argv[1]))
    logging.getLogger("sparkonce").setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
    spark = local_session("pipeline", job.master, {**SHORT_LIVED, **job.settings})
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.option("maxFilesPerTrigger", 1).schema("id STRING, key STRING").csv(job.folder)
    as_record = ["key", "concat_ws(' ', id, batch) AS value"]
    as_row = ["CAST(id AS BIGINT) AS id", "batch"]
    sinks = TellingSinks(
        KafkaSink(job.bootstrap_servers, topic=job.topic, transactional_id=job.topic, select=as_record),
        PostgresSink(job.postgres, table=job.table, select=as_row),
        MariaDBSink(job.mariadb, table=job.table, mode="upsert", keys=["id"], select=as_row),
    )
    sinks.start(files, job.checkpoint, trigger="available-now").awaitTermination()
    print("finished", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
