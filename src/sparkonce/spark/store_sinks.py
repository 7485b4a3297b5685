"""Sinks in databases and files: what users call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from pyspark.sql import SparkSession

from sparkonce.commit import Participant
from sparkonce.participants import FileParticipant
from sparkonce.participants.modes import LOCK_TIMEOUT_MS
from sparkonce.spark.exactly_once import ExactlyOnceWriter, RunOptions
from sparkonce.spark.micro_batches import MicroBatchSink, Writer
from sparkonce.spark.outputs import Select
from sparkonce.spark.store_output import StoreOutput


class Common(TypedDict, total=False):
    """What all sinks in stores take."""

    select: Select
    retries: int
    grants_host: str | None
    grants_port: int


class StoreSink(MicroBatchSink):
    """A sink in any store that has a `Participant`, one of your own perhaps."""

    def __init__(
        self,
        participant: Participant,
        *,
        select: Select = None,
        retries: int = 3,
        grants_host: str | None = None,
        grants_port: int = 0,
    ) -> None:
        super().__init__()
        self.participant = participant
        self.select = select
        self.run_options = RunOptions(retries=retries, grants_host=grants_host, grants_port=grants_port)

    def new_writer(self, spark: SparkSession) -> Writer:
        """As `MicroBatchSink` says."""
        return ExactlyOnceWriter(spark, self.run_options, None, [StoreOutput(self.participant, self.select)])


class PostgresSink(StoreSink):
    """Writes to a table of PostgreSQL.

    sink = PostgresSink("host=localhost dbname=shop", table="orders", mode="upsert", keys=["id"])
    query = sink.start(df, checkpoint="checkpoints/orders")
    """

    def __init__(
        self,
        dsn: str,
        *,
        table: str,
        mode: str = "append",
        keys: Sequence[str] = (),
        name: str | None = None,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
        **common: Unpack[Common],
    ) -> None:
        from sparkonce.participants.postgres import postgres_participant  # noqa: PLC0415  Needs an extra.

        participant = postgres_participant(
            dsn, table=table, mode=mode, keys=keys, name=name, lock_timeout_ms=lock_timeout_ms
        )
        super().__init__(participant, **common)


class MariaDBSink(StoreSink):
    """Writes to a table of MariaDB or MySQL.

    sink = MariaDBSink("mariadb://user:password@localhost:3306/shop", table="orders")
    query = sink.start(df, checkpoint="checkpoints/orders")
    """

    def __init__(
        self,
        url: str,
        *,
        table: str,
        mode: str = "append",
        keys: Sequence[str] = (),
        name: str | None = None,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
        **common: Unpack[Common],
    ) -> None:
        from sparkonce.participants.mariadb import mariadb_participant  # noqa: PLC0415  Needs an extra.

        participant = mariadb_participant(
            url, table=table, mode=mode, keys=keys, name=name, lock_timeout_ms=lock_timeout_ms
        )
        super().__init__(participant, **common)


class FileSink(StoreSink):
    """Writes files whose manifests show whole micro-batches; `sparkonce.published_files(path)` lists them.

    sink = FileSink("output/orders", format="parquet")
    query = sink.start(df, checkpoint="checkpoints/orders")
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: str = "parquet",  # noqa: A002  Spark's word for it.
        **common: Unpack[Common],
    ) -> None:
        participant = FileParticipant(Path(path).absolute(), format)
        super().__init__(participant, **common)
