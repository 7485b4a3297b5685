"""Pipeline files whose sinks are databases, atomically together with Kafka."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkonce.devbroker import DevBroker
from tests.broker.wire_samples import values_in
from tests.cluster.test_pipeline_spark import COUNT, file_of, orders, run_once
from tests.conftest import TopicFactory
from tests.servers.database_servers import MariaDB, Postgres

SINKS = """
[[sink]]
type = "postgres"
dsn = {{ env = "SHOP_DSN" }}
table = "{table}"
select = ["id", "amount"]

[[sink]]
type = "mariadb"
url = {{ file = "{url_file}" }}
table = "{table}"
mode = "upsert"
keys = ["amount"]
select = "SELECT amount, max(id) AS id FROM rows GROUP BY amount"
"""


def test_kafka_postgres_and_mariadb_from_a_file(
    spark: SparkSession,
    broker: DevBroker,
    topic: TopicFactory,
    postgres: Postgres,
    mariadb: MariaDB,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, table = topic(broker), topic(broker, partitions=2), f"orders_{time.time_ns()}"
    with postgres.connect() as pg:
        pg.execute(f"CREATE TABLE {table} (id bigint, amount bigint)")
    with mariadb.connect() as maria, maria.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (amount bigint PRIMARY KEY, id bigint)")
    monkeypatch.setenv("SHOP_DSN", postgres.dsn)
    url_file = tmp_path / "url"
    url_file.write_text(f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}?ssl_disabled=true\n")
    file = file_of(
        tmp_path,
        broker,
        source,
        target,
        source='value = { format = "json", schema = "id BIGINT, amount BIGINT" }',
        transform='sql = "SELECT value.id AS id, value.amount AS amount FROM source"',
        sink='select = "SELECT CAST(id AS STRING) AS value FROM rows"',
        more=SINKS.format(table=table, url_file=url_file),
    )
    for first in (0, COUNT):
        orders(broker, source, first)
        run_once(spark, file)
    numbers = range(2 * COUNT)
    assert sorted(map(int, values_in(broker, target, 2))) == list(numbers)
    with postgres.connect() as pg:
        assert pg.execute(f"SELECT id, amount FROM {table} ORDER BY id").fetchall() == [(n, n % 10) for n in numbers]
    with mariadb.connect() as maria, maria.cursor() as cursor:
        cursor.execute(f"SELECT amount, id FROM {table} ORDER BY amount")
        assert list(cursor.fetchall()) == [(amount, 2 * COUNT - 10 + amount) for amount in range(10)]
