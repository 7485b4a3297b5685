"""`sparkonce doctor` on database servers: prepared transactions that are off, and what a dead driver left in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.cli.query_file import load_query
from sparkonce.commit import Run, query_digest
from sparkonce.devbroker import DevBroker
from sparkonce.ops import Query
from sparkonce.ops.doctor import Finding, Verdict, examine, gather
from tests.broker.ops_samples import write_pipeline
from tests.broker.transaction_samples import new_id
from tests.conftest import TopicFactory
from tests.servers.database_servers import MariaDB, Postgres

QUERY = "query-of-a-dead-driver"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": QUERY}))
    return tmp_path


def query_with(broker: DevBroker, topic: TopicFactory, folder: Path, sink: str) -> Query:
    file = write_pipeline(folder, broker.bootstrap_servers, topic(broker), topic(broker), new_id(), f"[[sink]]\n{sink}")
    return load_query(file)


def about_stores(query: Query) -> list[Finding]:
    return [finding for finding in examine(gather(query)) if finding.subject == "stores"]


def postgres_sink(dsn: str, mode: str = "append") -> str:
    return f'type = "postgres"\ndsn = "{dsn}"\ntable = "orders"\nmode = "{mode}"'


def own_tables(server: Postgres) -> list[tuple[object, ...]]:
    """Those that sinks make beside their targets."""
    with server.connect() as connection:
        return connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'sparkonce%'").fetchall()


def test_prepared_transactions_that_are_off(
    broker: DevBroker, topic: TopicFactory, folder: Path, postgres_as_installed: Postgres
) -> None:
    before = own_tables(postgres_as_installed)
    query = query_with(broker, topic, folder, postgres_sink(postgres_as_installed.dsn))
    (finding,) = about_stores(query)
    assert finding.verdict is Verdict.PROBLEM
    assert "prepared transactions are switched off" in finding.message
    assert "max_prepared_transactions = 64" in finding.message
    (other,) = about_stores(query_with(broker, topic, folder, postgres_sink(postgres_as_installed.dsn, "idempotent")))
    assert other.verdict is Verdict.OK
    assert own_tables(postgres_as_installed) == before, "the doctor changes nothing"


def test_fewer_than_are_needed(broker: DevBroker, topic: TopicFactory, folder: Path, postgres: Postgres) -> None:
    query = replace(query_with(broker, topic, folder, postgres_sink(postgres.dsn)), branches=100)
    (finding,) = about_stores(query)
    assert "are limited to 64, 100 are needed" in finding.message


def test_what_a_dead_driver_left(broker: DevBroker, topic: TopicFactory, folder: Path, postgres: Postgres) -> None:
    query = query_with(broker, topic, folder, postgres_sink(postgres.dsn))
    (finding,) = about_stores(query)
    assert finding.verdict is Verdict.OK
    name = Run(query_digest(QUERY), 7, 3).branch("orders", 0, 1).name
    with postgres.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT txid_current()")
        connection.execute(f"PREPARE TRANSACTION '{name}'")
        (finding,) = about_stores(query)
        connection.execute(f"ROLLBACK PREPARED '{name}'")
    assert finding.verdict is Verdict.WARNING
    assert f"1 branch in doubt ({name})" in finding.message


def test_a_server_that_is_not_there(broker: DevBroker, topic: TopicFactory, folder: Path) -> None:
    dsn = "host=127.0.0.1 port=1 dbname=shop user=shop password=hush connect_timeout=2"
    (finding,) = about_stores(query_with(broker, topic, folder, postgres_sink(dsn)))
    assert finding.verdict is Verdict.PROBLEM
    assert "Connection refused" in finding.message
    assert "hush" not in finding.message


def test_mariadb(broker: DevBroker, topic: TopicFactory, folder: Path, mariadb: MariaDB) -> None:
    url = f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}"
    (finding,) = about_stores(query_with(broker, topic, folder, f'type = "mariadb"\nurl = "{url}"\ntable = "orders"'))
    assert finding.verdict is Verdict.OK
    assert "can prepare transactions, and has none in doubt" in finding.message
