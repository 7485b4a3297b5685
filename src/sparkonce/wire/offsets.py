"""Which offsets a topic partition has: earliest, latest, last stable, by timestamp. Asked from the leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import LIST_OFFSETS
from sparkonce.wire.client import Client, message_encoder
from sparkonce.wire.connection import Address
from sparkonce.wire.fetch import Isolation
from sparkonce.wire.handles import Handle, per_leader
from sparkonce.wire.kafka_python import decode_response
from sparkonce.wire.verdicts import error_for


class OffsetAt(IntEnum):
    """Moments that stand for themselves instead of for milliseconds; the numbers are the protocol's."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset with its record's timestamp, where one was asked for. -1 stands for "no such record"."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets(
    client: Client,
    moments: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """The offset of each topic partition at a moment: milliseconds since 1970, or an `OffsetAt`.

    LATEST is the high watermark, or with READ_COMMITTED the last stable offset.
    """
    until = client.deadline(deadline)

    def start(address: Address, group: dict[TopicPartition, int]) -> Handle[ListedOffset]:
        body = list_offsets_body(group, isolation)
        pending = client.send(address, LIST_OFFSETS, message_encoder(LIST_OFFSETS, body), until)
        return Handle(client, pending, group.keys(), _read)

    return per_leader(client, moments, until, start)


def list_offsets_body(moments: Mapping[TopicPartition, int], isolation: Isolation) -> dict[str, Any]:
    """A ListOffsets request."""
    topics: dict[str, list[dict[str, int]]] = {}
    for tp, moment in moments.items():
        item = {"partition_index": tp.partition, "current_leader_epoch": -1, "timestamp": int(moment)}
        topics.setdefault(tp.topic, []).append(item)
    return {
        "replica_id": -1,
        "isolation_level": int(isolation),
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _read(version: int, body: memoryview) -> dict[TopicPartition, ListedOffset | SparkonceError]:
    return read_list_offsets(decode_response(LIST_OFFSETS.message, version, body))


def read_list_offsets(response: Any) -> dict[TopicPartition, ListedOffset | SparkonceError]:
    """Read a ListOffsets response."""
    outcomes: dict[TopicPartition, ListedOffset | SparkonceError] = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                outcomes[tp] = error_for(LIST_OFFSETS.name, p.error_code, str(tp))
            else:
                outcomes[tp] = ListedOffset(p.offset, p.timestamp, p.leader_epoch)
    return outcomes
