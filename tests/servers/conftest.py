"""Real database servers for the tests that ask for them, one of each kind a pytest-xdist worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkonce.devbroker import DevBroker
from tests.broker.wire_samples import values_in
from tests.conftest import TopicFactory
from tests.servers.database_servers import MariaDB, Postgres
from tests.servers.decided import Decided, InFiles, InKafka
from tests.servers.stores import STORES, Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL with prepared transactions."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_as_installed() -> Iterator[Postgres]:
    """PostgreSQL as it comes, without prepared transactions."""
    server = Postgres(prepared=0)
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """MariaDB as it comes."""
    server = MariaDB()
    yield server
    server.close()


CASES = [
    *((name, "files") for name in STORES),
    *((name, "kafka") for name in ("memory", "files", "postgres", "mariadb")),
]
"""Every store in every mode decided by files, and those that differ in how they prepare decided by Kafka."""


@dataclass(frozen=True)
class Case:
    """A store with two empty sinks, and where its queries are decided."""

    store: Store
    decided: Decided
    sent: Callable[[], list[bytes]] | None = None
    """What Kafka shows, if it takes part."""


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path: Path, topic: TopicFactory) -> Iterator[Case]:
    name, decided = request.param
    made = STORES[name](request.getfixturevalue, tmp_path)
    made.prepare_sinks()
    if decided == "files":
        yield Case(made, InFiles(tmp_path))
    else:
        broker: DevBroker = request.getfixturevalue("broker")
        place = InKafka(broker.bootstrap_servers, topic(broker))
        yield Case(made, place, lambda: values_in(broker, place.topic, 1))
    made.close()
