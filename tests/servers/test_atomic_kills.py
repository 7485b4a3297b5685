"""Kafka, PostgreSQL and MariaDB in one Spark query that is killed with everything it started, at random moments."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparkonce.devbroker import DevBroker
from tests.broker.wire_samples import values_in
from tests.cluster.judge import ROOT, RUN_SECONDS, write_input
from tests.conftest import TopicFactory
from tests.servers.atomic_pipeline import Job
from tests.servers.database_servers import MariaDB, Postgres

PARTITIONS, ROWS = 3, 200
LONGEST_LIFE_SECONDS = 4.0
"""After the first sign of life of a micro-batch."""
_BEGUN = re.compile("batch|sparkonce")


class Stores:
    """The three of them, as independent clients see them."""

    def __init__(self, job: Job, broker: DevBroker, postgres: Postgres, mariadb: MariaDB) -> None:
        self.job, self._broker, self._postgres, self._mariadb = job, broker, postgres, mariadb
        with postgres.connect() as connection:
            connection.execute(f"CREATE TABLE {job.table} (id bigint, batch int)")
        with mariadb.connect() as maria, maria.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {job.table} (id bigint PRIMARY KEY, batch int)")

    def in_kafka(self) -> list[tuple[int, int]]:
        records = values_in(self._broker, self.job.topic, PARTITIONS)
        return sorted((int(record.split()[0]), int(record.split()[1])) for record in records)

    def in_postgres(self) -> list[tuple[int, int]]:
        with self._postgres.connect() as connection:
            return connection.execute(f"SELECT id, batch FROM {self.job.table} ORDER BY 1").fetchall()  # type: ignore[return-value]

    def in_mariadb(self) -> list[tuple[int, int]]:
        with self._mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id, batch FROM {self.job.table} ORDER BY 1")
            return list(cursor.fetchall())

    def prepared(self) -> int:
        with self._postgres.connect() as connection:
            found = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
        with self._mariadb.connect() as maria, maria.cursor() as cursor:
            return int(str(found[0] if found else 0)) + cursor.execute("XA RECOVER")

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Looks all the time whether a database shows a micro-batch that Kafka does not; gives those that it saw."""
        wrong: list[int] = []
        looks: list[int] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                shown = {batch for _, batch in [*self.in_postgres(), *self.in_mariadb()]}
                in_kafka = {batch for _, batch in self.in_kafka()}
                wrong.extend(shown - in_kafka)
                looks.append(len(shown))
                done.wait(0.05)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield wrong
        finally:
            done.set()
            watcher.join()
        assert looks[-1] > 0


def start(job: Job) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.servers.atomic_pipeline", job.to_text()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def killed(job: Job, life_seconds: float) -> tuple[bool, str]:
    """Runs the program and kills it, its JVM and its workers; whether it had not ended before, and what it said."""
    with start(job) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if _BEGUN.match(line):
                time.sleep(life_seconds)
                break
        was_running = process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said += process.stdout
    return was_running, "".join(said)


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.chaos)])
def test_three_stores_hold_the_same_after_random_kills(
    kills: int, broker: DevBroker, topic: TopicFactory, postgres: Postgres, mariadb: MariaDB, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SEED", time.time_ns()))
    print(f"SEED={seed}")  # noqa: T201  pytest shows it if the test fails.
    chance = random.Random(seed)
    ids = write_input(tmp_path / "in", files=4 * kills, rows=ROWS)
    job = Job(
        bootstrap_servers=broker.bootstrap_servers,
        topic=topic(broker, partitions=PARTITIONS),
        postgres=postgres.dsn,
        mariadb=f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}?ssl_disabled=true",
        table=f"orders_{time.time_ns()}",
        folder=str(tmp_path / "in"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    stores = Stores(job, broker, postgres, mariadb)
    with stores.watched() as wrong:
        for _ in range(kills):
            was_killed, said = killed(job, chance.uniform(0, LONGEST_LIFE_SECONDS))
            assert "Traceback" not in said, said
            if not was_killed:
                break
        with start(job) as process:
            said, _ = process.communicate(timeout=RUN_SECONDS * kills)
        assert process.returncode == 0, said
    assert wrong == []
    rows = stores.in_kafka()
    assert [row[0] for row in rows] == [int(name) for name in ids]
    assert stores.in_postgres() == rows
    assert stores.in_mariadb() == rows
    assert stores.prepared() == 0
