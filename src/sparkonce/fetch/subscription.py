"""Which topic partitions a source reads: of named topics, of topics whose names match, or named ones. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition
from sparkonce.wire import ClusterMetadata, Topic


@dataclass(frozen=True, slots=True)
class TopicNames:
    """All partitions of these topics."""

    names: tuple[str, ...]

    @property
    def topics_to_describe(self) -> Sequence[str] | None:
        """The topics to ask the cluster for; None: all."""
        return self.names

    def includes(self, topic: Topic) -> bool:
        """Whether the topic is read."""
        return topic.name in self.names

    def partitions_of(self, topic: Topic) -> list[TopicPartition]:
        """Those of a topic that are read."""
        return every_partition(topic)


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All partitions of the topics whose whole name matches; never Kafka's internal topics."""

    pattern: str

    @property
    def topics_to_describe(self) -> Sequence[str] | None:
        """The topics to ask the cluster for; None: all."""
        return None

    def includes(self, topic: Topic) -> bool:
        """Whether the topic is read."""
        return not topic.internal and re.fullmatch(self.pattern, topic.name) is not None

    def partitions_of(self, topic: Topic) -> list[TopicPartition]:
        """Those of a topic that are read."""
        return every_partition(topic)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Exactly these topic partitions."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics_to_describe(self) -> Sequence[str] | None:
        """The topics to ask the cluster for; None: all."""
        return sorted({partition.topic for partition in self.partitions})

    def includes(self, topic: Topic) -> bool:
        """Whether the topic is read."""
        return any(partition.topic == topic.name for partition in self.partitions)

    def partitions_of(self, topic: Topic) -> list[TopicPartition]:
        """Those of a topic that are read."""
        wanted = [partition for partition in self.partitions if partition.topic == topic.name]
        missing = [str(partition) for partition in wanted if not 0 <= partition.partition < len(topic.partitions)]
        if missing:
            raise UsageError(
                f"assign names {', '.join(missing)}, but topic {topic.name} has {len(topic.partitions)} partitions"
            )
        return wanted


Subscription = TopicNames | TopicPattern | Assignment


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a subscription found: the topic partitions in order, and the id of each of their topics."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: dict[str, str]


def subscribed(subscription: Subscription, metadata: ClusterMetadata) -> Subscribed:
    """The topic partitions of a subscription in a cluster as it was described."""
    topics = [topic for topic in metadata.topics.values() if subscription.includes(topic)]
    partitions = sorted(partition for topic in topics for partition in subscription.partitions_of(topic))
    return Subscribed(tuple(partitions), {topic.name: str(topic.topic_id) for topic in topics})


def every_partition(topic: Topic) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic.name, partition.index) for partition in topic.partitions]


def parse_topic_names(text: str) -> TopicNames:
    """Reads "orders,payments"."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError("subscribe names no topic; write topic names with commas between them")
    return TopicNames(names)


def parse_topic_pattern(text: str) -> TopicPattern:
    """Checks a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"subscribePattern {text!r} is not a regular expression: {error}") from error
    return TopicPattern(text)


def parse_assignment(text: str) -> Assignment:
    """Reads {"orders": [0, 1], "payments": [2]}."""
    try:
        found = sorted(
            {TopicPartition(topic, _index(index)) for topic, indexes in json.loads(text).items() for index in indexes}
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f'assign must look like {{"topic": [0, 1]}}, not {text!r}') from error
    if not found:
        raise UsageError("assign names no topic partition")
    return Assignment(tuple(found))


def _index(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a partition number")
    return value
