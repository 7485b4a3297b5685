"""The examples of the documents that need databases, run as they stand but for addresses and checkpoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sparkonce import published_files
from sparkonce.devbroker import DevBroker
from tests.documents import Example, examples, page
from tests.servers.database_servers import MariaDB, Postgres
from tests.shop import ORDERS, Shop, expected

DSN, URL = "host=localhost dbname=shop", "mariadb://shop:secret@localhost:3306/shop"
RECIPE = "Kafka and PostgreSQL"


@pytest.fixture(scope="module")
def shop(broker: DevBroker) -> Shop:
    return Shop(broker)


@pytest.fixture
def tables(postgres: Postgres) -> Iterator[str]:
    """A schema of its own, in which the examples' tables are."""
    name = f"docs_{time.time_ns()}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{postgres.dsn} options=-csearch_path={name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def with_addresses(example: Example, postgres: str, mariadb: str = "") -> Example:
    return replace(example, text=example.text.replace(DSN, postgres).replace(URL, mariadb))


def test_kafka_and_postgresql(shop: Shop, spark: SparkSession, postgres: Postgres, tables: str, tmp_path: Path) -> None:
    recipe = [example for example in examples(page("COOKBOOK.md")) if example.section == RECIPE]
    assert [example.language for example in recipe] == ["sql", "python", "toml"]
    create, program, file = recipe
    schema = tables.rpartition("=")[2]
    with postgres.connect() as connection:
        connection.execute(f"SET search_path = {schema}")
        connection.execute(create.text)
    latest = {order["user"]: (order["user"], order["id"], order["amount"]) for order in ORDERS}
    sent = expected([order for order in ORDERS if order["amount"] >= 500], ["id", "user", "amount"])
    shop.empty("watched-orders")
    for times, run in enumerate(("program", "file"), 1):
        if run == "program":
            shop.run_program(with_addresses(program, tables), tmp_path)
        else:
            shop.run_file(with_addresses(file, tables), (), spark, tmp_path / "file")
        with postgres.connect() as connection:
            rows = connection.execute(f'SELECT "user", id, amount FROM {schema}.latest_orders').fetchall()
            assert connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() == (0,)
        assert sorted(rows) == sorted(latest.values())
        # The file has a checkpoint of its own, and writes the same again.
        assert shop.values("watched-orders") == Counter({row: times * count for row, count in sent.items()})


def test_all_stores_together(
    shop: Shop,
    spark: SparkSession,
    postgres: Postgres,
    tables: str,
    mariadb: MariaDB,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The second one, a participant of one's own, is run by the contract suite.
    program, _ = examples(page("DATABASES.md"), "python")
    schema = tables.rpartition("=")[2]
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, amount double precision)")
    with mariadb.connect() as maria, maria.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE TABLE totals (id bigint, count bigint)")
    monkeypatch.chdir(tmp_path)
    shop.empty("all-orders")
    url = f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}?ssl_disabled=true"
    shop.run_program(with_addresses(program, tables, url), tmp_path)
    assert shop.values("all-orders") == expected(ORDERS, ["id", "amount"])
    counts = Counter(order["id"] for order in ORDERS)
    with postgres.connect() as connection:
        rows = connection.execute(f"SELECT id, amount FROM {schema}.orders ORDER BY id").fetchall()
    assert rows == sorted({(order["id"], order["amount"]) for order in ORDERS})
    with mariadb.connect() as maria, maria.cursor() as cursor:
        cursor.execute("SELECT id, count FROM totals ORDER BY id")
        assert list(cursor.fetchall()) == sorted(counts.items())
        cursor.execute("DROP TABLE totals")
    archive = pa.concat_tables(pq.read_table(path) for path in published_files(tmp_path / "archive" / "orders"))
    assert Counter(archive["id"].to_pylist()) == counts
