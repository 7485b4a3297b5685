"""Real database servers for the tests that ask for them, one of each kind a pytest-xdist worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.database_servers import MariaDB, Postgres
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


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Every store in every mode, with two empty sinks."""
    make = STORES[request.param]
    made = make(request.getfixturevalue, tmp_path)
    made.prepare_sinks()
    yield made
    made.close()
