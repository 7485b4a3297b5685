"""One query over Kafka and all stores at once, its driver killed at random moments: at the end all hold the same."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from pathlib import Path

import pytest

from sparkonce.devbroker import DevBroker
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory
from tests.servers.decided import Decided, InKafka, value_of
from tests.servers.driver import Job, drive, in_process
from tests.servers.stores import STORES, Row, Store, arrow_rows

TOGETHER = ("memory", "files", "postgres", "postgres-idempotent", "mariadb", "mariadb-idempotent")
PARTITIONS = 2
LONGEST_LIFE_SECONDS = 1.0


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.chaos)])
def test_kafka_and_stores_agree_after_random_kills(
    request: pytest.FixtureRequest, tmp_path: Path, broker: DevBroker, topic: TopicFactory, kills: int
) -> None:
    seed = int(os.environ.get("SEED", time.time_ns()))
    print(f"SEED={seed}")  # noqa: T201  pytest shows it if the test fails.
    chance = random.Random(seed)
    stores = [STORES[name](request.getfixturevalue, tmp_path) for name in TOGETHER]
    try:
        for store in stores:
            store.prepare_sinks()
        name = topic(broker)
        rows = _kill_often(stores, tmp_path, kills, chance, InKafka(broker.bootstrap_servers, name))
        assert sorted(values_in(broker, name, 1)) == sorted(value_of(*row) for row in rows)
    finally:
        for store in stores:
            store.close()


def _kill_often(stores: list[Store], folder: Path, kills: int, chance: random.Random, decided: Decided) -> list[Row]:
    batches = 2 * kills
    rows = tuple(tuple(arrow_rows(stores[0], b, p) for p in range(PARTITIONS)) for b in range(batches))
    job = Job(str(uuid.uuid4()), tuple(store.sinks[0] for store in stores), folder, rows, decided)
    killed = 0
    while killed < kills:
        ended = in_process(drive, job, kill_after=chance.uniform(0.02, LONGEST_LIFE_SECONDS))
        if ended == 0:
            break  # All is written; a fast machine may get there before the last kill.
        assert ended == -signal.SIGKILL
        killed += 1
    assert in_process(drive, job, kill_after=600) == 0
    assert killed > kills // 4
    expected = stores[0].expected(batches, PARTITIONS)[0]
    for store in stores:
        assert sorted(store.rows(store.tables[0])) == expected
        assert store.leftovers() == 0
    return expected
