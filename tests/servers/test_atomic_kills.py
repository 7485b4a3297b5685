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
from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from tests.broker.wire_samples import values_in
from tests.cluster.judge import ROOT, RUN_SECONDS, write_input
from tests.cluster.test_sink_faults import executors
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

    def in_kafka(self, *, settled: bool = True) -> list[tuple[int, int]]:
        records = values_in(self._broker, self.job.topic, PARTITIONS, settled=settled)
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

    def assert_hold(self, ids: list[str]) -> None:
        """All three the same, in the same micro-batches, and nothing is left prepared."""
        rows = self.in_kafka()
        assert [row[0] for row in rows] == [int(name) for name in ids]
        assert self.in_postgres() == rows
        assert self.in_mariadb() == rows
        assert self.prepared() == 0

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Looks all the time whether a database shows a micro-batch that Kafka does not; gives those that it saw."""
        wrong: list[int] = []
        looks: list[int] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                shown = {batch for _, batch in [*self.in_postgres(), *self.in_mariadb()]}
                in_kafka = {batch for _, batch in self.in_kafka(settled=False)}
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


@pytest.fixture
def stores(broker: DevBroker, topic: TopicFactory, postgres: Postgres, mariadb: MariaDB, tmp_path: Path) -> Stores:
    job = Job(
        bootstrap_servers=broker.bootstrap_servers,
        topic=topic(broker, partitions=PARTITIONS),
        postgres=postgres.dsn,
        mariadb=f"mariadb://root@127.0.0.1:{mariadb.port}/{mariadb.database}?ssl_disabled=true",
        table=f"orders_{time.time_ns()}",
        folder=str(tmp_path / "in"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    return Stores(job, broker, postgres, mariadb)


def finish(job: Job, seconds: float) -> None:
    with start(job) as process:
        said, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, said


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.chaos)])
def test_three_stores_hold_the_same_after_random_kills(kills: int, stores: Stores) -> None:
    seed = int(os.environ.get("SEED", time.time_ns()))
    print(f"SEED={seed}")  # noqa: T201  pytest shows it if the test fails.
    chance = random.Random(seed)
    ids = write_input(Path(stores.job.folder), files=4 * kills, rows=ROWS)
    with stores.watched() as wrong:
        for _ in range(kills):
            was_killed, said = killed(stores.job, chance.uniform(0, LONGEST_LIFE_SECONDS))
            assert "Traceback" not in said, said
            if not was_killed:
                break
        finish(stores.job, RUN_SECONDS * kills)
    assert wrong == []
    stores.assert_hold(ids)


@pytest.mark.chaos
def test_three_stores_hold_the_same_after_executors_were_killed(stores: Stores) -> None:
    """What they held of a micro-batch, computed once and kept for all sinks, is gone: it is aborted and runs again."""
    ids = write_input(Path(stores.job.folder), files=8, rows=ROWS)
    cluster = {"spark.executor.memory": "512m", "spark.task.maxFailures": "4"}
    job = replace(stores.job, master="local-cluster[2,1,1024]", settings=cluster)
    with stores.watched() as wrong, start(job) as process:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
        reader.start()
        for batch in (0, 2, 4):
            begun = wait_until(lambda n=batch: f"batch {n} " in "".join(said), Deadline.after(RUN_SECONDS))  # type: ignore[misc]
            assert begun, "".join(said)
            for executor in executors(process)[:1]:
                executor.kill()
        process.wait(RUN_SECONDS)
        reader.join(30)
    assert process.returncode == 0, "".join(said)
    assert wrong == []
    stores.assert_hold(ids)
