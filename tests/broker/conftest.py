"""What several tests against brokers need."""

from __future__ import annotations

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from tests.conftest import TopicFactory


@pytest.fixture(params=["broker", "broker_tv1"])
def either(request: pytest.FixtureRequest) -> DevBroker:
    """A broker with the new transaction protocol, then one with the old."""
    chosen: DevBroker = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def home(either: DevBroker, topic: TopicFactory) -> TopicPartition:
    """Where a driver's marker is kept: a partition of a topic with two."""
    return TopicPartition(topic(either, partitions=2), 0)
