"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkonce.spark.grant_desk import GrantDesk
from tests.unit.grant_samples import desk_threads


@pytest.fixture
def desk() -> Iterator[GrantDesk]:
    made = GrantDesk("127.0.0.1", "127.0.0.1")
    made.open_round("round", lambda _: None)
    yield made
    made.close()
    assert desk_threads() == []


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    made = ThreadPoolExecutor(120)
    yield made
    made.shutdown(wait=False)  # What still waits is freed when the desk closes.
