"""Offsets of topic partitions and their JSON form, the one of Spark's built-in source: {"topic": {"0": 5}}. No IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.model import TopicPartition

Offsets = Mapping[TopicPartition, int]


def nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The JSON form, in one order whatever the order of the input: Spark compares offsets as text."""
    topics: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return topics


def flat(topics: Any, what: str) -> dict[TopicPartition, int]:
    """Read the JSON form; `what` names it in the error for anything else."""
    try:
        return {
            TopicPartition(topic, int(partition)): _whole_number(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f'{what} must look like {{"topic": {{"0": 23, "1": -2}}}}, not {topics!r}') from error


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
