"""Committed offsets of consumer groups, outside of transactions. We never join a group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import OFFSET_COMMIT, OFFSET_FETCH
from sparkonce.wire.client import Client, CoordinatorKind
from sparkonce.wire.connection import Address
from sparkonce.wire.verdicts import error_for


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The next offset to read, with a text that the group keeps beside it (4,096 bytes at most by default)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def commit_offsets(
    client: Client, group: str, offsets: Mapping[TopicPartition, GroupOffset], deadline: Deadline | None = None
) -> None:
    """Commit offsets for a group that has no members."""
    until = client.deadline(deadline)
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offset_topics(offsets),
    }

    def attempt(address: Address) -> None:
        raise_offset_errors(client.ask(address, OFFSET_COMMIT, body, until), OFFSET_COMMIT.name, group)

    client.with_coordinator(CoordinatorKind.GROUP, group, until, attempt)


def committed_offsets(
    client: Client,
    group: str,
    topic_partitions: Collection[TopicPartition] | None = None,
    deadline: Deadline | None = None,
    *,
    require_stable: bool = True,
) -> dict[TopicPartition, GroupOffset]:
    """The offsets a group has committed, for some topic partitions or for all; those without one are left out.

    With `require_stable` an offset that an open transaction is about to change is waited for (KIP-447). Name the
    topic partitions for that: when all are asked for, a broker leaves out one whose first offset is still pending.
    """
    until = client.deadline(deadline)
    body = offset_fetch_body(group, topic_partitions, require_stable=require_stable)
    return client.with_coordinator(
        CoordinatorKind.GROUP,
        group,
        until,
        lambda a: read_offset_fetch(client.ask(a, OFFSET_FETCH, body, until), group),
    )


def offset_topics(offsets: Mapping[TopicPartition, GroupOffset]) -> list[dict[str, Any]]:
    """Offsets to commit, in the shape that OffsetCommit and TxnOffsetCommit share."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, value in offsets.items():
        item = {
            "partition_index": tp.partition,
            "committed_offset": value.offset,
            "committed_leader_epoch": value.leader_epoch,
            "committed_metadata": value.metadata,
        }
        topics.setdefault(tp.topic, []).append(item)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def raise_offset_errors(response: Any, api: str, group: str) -> None:
    """Raise the first error of an answer to OffsetCommit or TxnOffsetCommit."""
    for topic in response.topics:
        for p in topic.partitions:
            if p.error_code:
                tp = TopicPartition(topic.name, p.partition_index)
                raise error_for(api, p.error_code, f"group {group}, {tp}")


def offset_fetch_body(
    group: str, topic_partitions: Collection[TopicPartition] | None, *, require_stable: bool
) -> dict[str, Any]:
    """An OffsetFetch request for one group; None asks for all its offsets."""
    topics: dict[str, list[int]] = {}
    for tp in topic_partitions or ():
        topics.setdefault(tp.topic, []).append(tp.partition)
    named = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
    wanted = None if topic_partitions is None else named
    return {"groups": [{"group_id": group, "topics": wanted}], "require_stable": require_stable}


def read_offset_fetch(response: Any, group: str) -> dict[TopicPartition, GroupOffset]:
    """Read an OffsetFetch response; any error in it is raised."""
    answer = response.groups[0]
    if answer.error_code:
        raise error_for(OFFSET_FETCH.name, answer.error_code, f"group {group}")
    found: dict[TopicPartition, GroupOffset] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                raise error_for(OFFSET_FETCH.name, p.error_code, f"group {group}, {tp}")
            if p.committed_offset >= 0:
                found[tp] = GroupOffset(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
    return found
