"""Streaming queries into databases and files, alone and together with Kafka, in one Spark session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sparkonce import AtomicSinks, FileSink, KafkaSink, MariaDBSink, PostgresSink, StoreSink, published_files
from sparkonce.commit import Decision, FileDecisions, query_digest
from sparkonce.devbroker import DevBroker
from sparkonce.errors import FencedError, UsageError
from sparkonce.spark.checkpoint_folder import SparkFolder
from sparkonce.spark.micro_batches import MicroBatchSink
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory
from tests.servers.database_servers import MariaDB, Postgres
from tests.servers.stores import STORES, Store

ROWS, PARTITIONS = 300, 3
STORED = [name for name in STORES if name != "memory"]


class Lines:
    """A folder from which a query reads, a file a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._files = spark, folder / "in", 0
        self._folder.mkdir()

    def add(self, files: int) -> None:
        for _ in range(files):
            first = self._files * ROWS
            lines = [f"{number},{self._files}" for number in range(first, first + ROWS)]
            path = self._folder / f"{self._files:04d}.csv"
            path.write_text("\n".join(lines) + "\n")
            self._files += 1
            time.sleep(0.01)  # Spark takes files by their time of change.

    def stream(self) -> DataFrame:
        schema = "id BIGINT, batch INT"
        return self._spark.readStream.option("maxFilesPerTrigger", 1).schema(schema).csv(str(self._folder))


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path)


def run(sink: MicroBatchSink, rows: DataFrame, folder: Path) -> None:
    """All that is there, then the end."""
    query = sink.start(rows, str(folder / "checkpoint"), trigger="available-now")
    try:
        query.awaitTermination()
    finally:
        sink.close()


@pytest.fixture(params=STORED)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](request.getfixturevalue, tmp_path)
    made.prepare_sinks()
    yield made
    made.close()


def test_a_query_into_one_store(stored: Store, lines: Lines, tmp_path: Path) -> None:
    """Also into a participant that is not ours: SQLite."""
    table = stored.tables[0]
    # With keys every second row of a micro-batch replaces another, of which Spark knows in another partition.
    rows = lines.stream()
    if stored.keeps_keys:
        rows = rows.selectExpr("id DIV 2 AS id", "batch").repartition(2)
    sink = StoreSink(stored.sink(table))
    lines.add(2)
    run(sink, rows, tmp_path)
    assert sink.last_receipt is not None
    assert sum(sink.last_receipt.stored_rows.values()) == ROWS
    lines.add(1)
    run(sink, rows, tmp_path)
    expected = {(number // 2 if stored.keeps_keys else number, number // ROWS) for number in range(3 * ROWS)}
    assert sorted(stored.rows(table)) == sorted(expected)
    assert stored.leftovers() == 0


def tables_of(postgres: Postgres, mariadb: MariaDB) -> tuple[PostgresSink, MariaDBSink, Callable[[], list[list[Any]]]]:
    """Fresh tables in both servers, sinks for them, and what they hold."""
    name = f"orders_{time.time_ns()}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {name} (id bigint, doubled bigint)")
    with mariadb.connect() as maria, maria.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, batch int)")
    to_postgres = PostgresSink(postgres.dsn, table=name, select=["id", "id * 2 AS doubled"])
    url = f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}?ssl_disabled=true"
    to_mariadb = MariaDBSink(url, table=name, mode="upsert", keys=["id"], select=lambda rows: rows.where("id % 3 = 0"))

    def held() -> list[list[Any]]:
        with postgres.connect() as pg:
            first = pg.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
        with mariadb.connect() as maria, maria.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {name} ORDER BY 1")
            return [list(first), list(cursor.fetchall())]

    return to_postgres, to_mariadb, held


def test_all_of_them_together(
    spark: SparkSession,
    lines: Lines,
    broker: DevBroker,
    topic: TopicFactory,
    postgres: Postgres,
    mariadb: MariaDB,
    tmp_path: Path,
) -> None:
    """Each sink gets what it selects, all get all micro-batches, and the plan is executed once."""
    name = topic(broker, partitions=PARTITIONS)
    computed = spark.sparkContext.accumulator(0)

    def counted(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for arrow_batch in arrow_batches:
            computed.add(arrow_batch.num_rows)
            yield arrow_batch

    to_postgres, to_mariadb, held = tables_of(postgres, mariadb)
    kafka = KafkaSink(
        broker.bootstrap_servers,
        topic=name,
        transactional_id=name,
        select=["CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"],
    )
    sinks = AtomicSinks(kafka, to_postgres, to_mariadb, FileSink(tmp_path / "out"))
    rows = lines.stream().mapInArrow(counted, "id BIGINT, batch INT")
    lines.add(2)
    run(sinks, rows, tmp_path)
    lines.add(1)
    run(sinks, rows, tmp_path)
    everything = range(3 * ROWS)
    assert sorted(int(value) for value in values_in(broker, name, PARTITIONS)) == list(everything)
    assert held() == [
        [(number, 2 * number) for number in everything],
        [(number, number // ROWS) for number in everything if number % 3 == 0],
    ]
    files = pa.concat_tables(pq.read_table(path) for path in published_files(tmp_path / "out"))
    assert sorted(files["id"].to_pylist()) == list(everything)
    assert computed.value == len(everything)
    receipt = sinks.last_receipt
    assert receipt is not None
    assert receipt.records == ROWS
    assert sorted(receipt.stored_rows.values()) == [ROWS // 3, ROWS, ROWS]


def test_what_does_not_fit_fails_before_anything_is_written(
    lines: Lines, postgres: Postgres, postgres_as_installed: Postgres, tmp_path: Path
) -> None:
    lines.add(1)
    table = f"narrow_{time.time_ns()}"
    for server in (postgres, postgres_as_installed):
        with server.connect() as connection:
            connection.execute(f"CREATE TABLE {table} (id int)")

    def refused(sink: StoreSink) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            run(sink, lines.stream(), tmp_path)
        return str(caught.value)

    assert "PostgreSQL has no table" in refused(PostgresSink(postgres.dsn, table="nowhere"))
    text = refused(PostgresSink(postgres.dsn, table=table))
    assert "column id is int64, which does not always fit into int4: cast it" in text
    assert "it has no column batch" in text
    narrow = ["CAST(id AS INT) AS id"]
    text = refused(PostgresSink(postgres_as_installed.dsn, table=table, select=narrow))
    assert "max_prepared_transactions = 64" in text
    assert not (tmp_path / "checkpoint" / "sparkonce").exists()
    # And with what was asked for, the same query goes on.
    run(PostgresSink(postgres.dsn, table=table, select=narrow), lines.stream(), tmp_path)
    with postgres.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (ROWS,)


def test_decisions_where_only_spark_can_write(spark: SparkSession, tmp_path: Path) -> None:
    """As on a filesystem that has no folders of ours: by what Spark writes its checkpoint with."""
    folder = SparkFolder(spark, f"file:{tmp_path}/decisions")
    assert folder.names() == []
    folder.create("1", b"first")
    with pytest.raises(FileExistsError):
        folder.create("1", b"second")
    assert folder.read("1") == b"first"
    with pytest.raises(FileNotFoundError):
        folder.read("2")
    folder.delete("1")
    folder.delete("1")
    assert "1" not in folder.names()

    first, second = FileDecisions(folder, "query"), FileDecisions(folder, "query")
    assert first.claim() is None
    decision = Decision(query_digest("query"), 0, first.new_epoch())
    first.record(decision)
    assert second.claim() == decision
    with pytest.raises(FencedError, match="taken over"):
        first.record(Decision(query_digest("query"), 1, first.new_epoch()))


def test_sinks_that_cannot_share_a_decision() -> None:
    kafka = KafkaSink("localhost:9092", topic="a", transactional_id="a")
    with pytest.raises(UsageError, match="one KafkaSink"):
        AtomicSinks(kafka, KafkaSink("localhost:9092", topic="b", transactional_id="b"))
    with pytest.raises(UsageError, match="at-least-once"):
        AtomicSinks(KafkaSink("localhost:9092", topic="a", guarantee="at-least-once"))
    with pytest.raises(UsageError, match="at least one"):
        AtomicSinks()
    with pytest.raises(UsageError, match="not str"):
        AtomicSinks("kafka")  # type: ignore[arg-type]
