"""Names, patterns and assignments against a cluster as it was described."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparkonce.errors import UsageError
from sparkonce.fetch import Subscription, parse_assignment, parse_topic_names, parse_topic_pattern
from sparkonce.fetch.positions import require_all_named
from sparkonce.fetch.subscription import subscribed
from sparkonce.model import TopicPartition
from sparkonce.wire import ClusterMetadata, Partition, Topic


def topic(name: str, partitions: int, *, internal: bool = False) -> Topic:
    indexes = tuple(Partition(index, 0, 0, (0,), (0,), ()) for index in range(partitions))
    return Topic(name, UUID(int=len(name)), internal, indexes)


METADATA = ClusterMetadata(
    "id", 0, {}, {t.name: t for t in (topic("orders", 2), topic("orders-eu", 1), topic("__offsets", 3, internal=True))}
)


def found(subscription: Subscription) -> list[str]:
    return [str(partition) for partition in subscribed(subscription, METADATA).partitions]


def test_topics() -> None:
    assert found(parse_topic_names("orders-eu, orders,")) == ["orders-0", "orders-1", "orders-eu-0"]
    assert subscribed(parse_topic_names("orders"), METADATA).topic_ids == {"orders": str(UUID(int=6))}


def test_a_pattern_matches_whole_names_and_never_internal_ones() -> None:
    assert found(parse_topic_pattern("orders")) == ["orders-0", "orders-1"]
    assert found(parse_topic_pattern(".*")) == ["orders-0", "orders-1", "orders-eu-0"]


def test_an_assignment() -> None:
    assert found(parse_assignment('{"orders": [1], "orders-eu": [0, 0]}')) == ["orders-1", "orders-eu-0"]
    with pytest.raises(UsageError, match="assign names orders-2, but topic orders has 2 partitions"):
        found(parse_assignment('{"orders": [1, 2]}'))


@pytest.mark.parametrize("text", ['{"orders": 1}', "orders", '["orders"]', '{"orders": ["1"]}', '{"orders": [true]}'])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(UsageError, match="assign must look like"):
        parse_assignment(text)


def test_what_names_nothing() -> None:
    with pytest.raises(UsageError, match="subscribe names no topic"):
        parse_topic_names(" , ")
    with pytest.raises(UsageError, match="assign names no topic partition"):
        parse_assignment("{}")
    with pytest.raises(UsageError, match="is not a regular expression"):
        parse_topic_pattern("orders(")


def test_exact_offsets_must_name_all_and_no_others() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    require_all_named({a: 0, b: 0}, (a, b), "startingOffsets")
    with pytest.raises(UsageError, match="must name every topic partition that is read; missing are t-1"):
        require_all_named({a: 0}, (a, b), "startingOffsets")
    with pytest.raises(UsageError, match="names topic partitions that are not read: t-1"):
        require_all_named({a: 0, b: 0}, (a,), "startingOffsets")
