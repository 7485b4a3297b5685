"""Asks the cluster where places are: the topic partitions of a subscription, the offsets of positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparkonce.deadline import Deadline
from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.positions import (
    SPECIAL_OFFSETS,
    AtTimestamp,
    Committed,
    Earliest,
    ExactOffsets,
    Latest,
    Position,
    require_all_named,
)
from sparkonce.fetch.subscription import Subscribed, Subscription, subscribed
from sparkonce.model import TopicPartition
from sparkonce.wire import Client, Isolation, OffsetAt, committed_offsets, list_offsets


def find_partitions(client: Client, subscription: Subscription, deadline: Deadline) -> Subscribed:
    """The topic partitions of a subscription. A topic named that does not exist, even after a moment, is an error."""

    def attempt() -> Subscribed:
        metadata = client.metadata(subscription.topics_to_describe, deadline)
        for problem in metadata.problems.values():
            raise problem
        return subscribed(subscription, metadata)

    return client.retried(deadline, attempt)


def offsets_at(
    client: Client,
    position: Position,
    partitions: Collection[TopicPartition],
    isolation: Isolation,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    """The offset of a position in each of the topic partitions."""
    wanted = tuple(partitions)
    if not wanted:
        return {}
    match position:
        case Earliest():
            return _listed(client, dict.fromkeys(wanted, OffsetAt.EARLIEST), isolation, deadline)
        case Latest():
            return _listed(client, dict.fromkeys(wanted, OffsetAt.LATEST), isolation, deadline)
        case ExactOffsets():
            return _exact(client, position.offsets, wanted, isolation, deadline)
        case AtTimestamp():
            return _at_timestamp(client, position, wanted, isolation, deadline)
        case Committed():
            return _committed(client, position, wanted, isolation, deadline)


def _listed(
    client: Client, moments: Mapping[TopicPartition, int], isolation: Isolation, deadline: Deadline
) -> dict[TopicPartition, int]:
    found = list_offsets(client, moments, isolation, deadline)
    return {partition: listed.offset for partition, listed in found.items()}


def _exact(
    client: Client, named: Offsets, partitions: tuple[TopicPartition, ...], isolation: Isolation, deadline: Deadline
) -> dict[TopicPartition, int]:
    require_all_named(named, partitions, "startingOffsets or endingOffsets")
    special = {partition: offset for partition, offset in named.items() if offset in SPECIAL_OFFSETS}
    return dict(named) | (_listed(client, special, isolation, deadline) if special else {})


def _at_timestamp(
    client: Client,
    position: AtTimestamp,
    partitions: tuple[TopicPartition, ...],
    isolation: Isolation,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    moments = position.of_each_ms
    if position.for_all_ms is not None:
        moments = dict.fromkeys(partitions, position.for_all_ms)
    require_all_named(moments, partitions, "the timestamps")
    found = _listed(client, moments, isolation, deadline)
    none = sorted(partition for partition, offset in found.items() if offset < 0)
    if none and not position.latest_if_none:
        raise UsageError(
            f"{none[0]} has no record at or after the timestamp {moments[none[0]]} ms. Choose an earlier one, or let "
            "startingOffsetsByTimestampStrategy be 'latest'"
        )
    return found | offsets_at(client, Latest(), none, isolation, deadline)


def _committed(
    client: Client,
    position: Committed,
    partitions: tuple[TopicPartition, ...],
    isolation: Isolation,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    found = {tp: value.offset for tp, value in committed_offsets(client, position.group, partitions, deadline).items()}
    missing = sorted(set(partitions) - set(found))
    if missing and position.otherwise is None:
        raise UsageError(
            f"group {position.group} has committed no offset for {missing[0]} (and {len(missing) - 1} others). Let "
            "committedOffsetsReset be 'earliest' or 'latest' if such topic partitions may be read from there"
        )
    otherwise = position.otherwise or Earliest()
    return found | offsets_at(client, otherwise, missing, isolation, deadline)
