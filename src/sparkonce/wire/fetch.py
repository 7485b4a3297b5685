"""Fetching raw record batches from the leaders of topic partitions.

The records are returned as views of the one buffer into which the answer was received; decoding them is the business
of `sparkonce.records`. Fetch sessions (KIP-227) are not used: every request names all its partitions.

A Fetch response of version 12 to 18 (read by hand because the generated decoder copies the records):

    throttle ms (int32) | error (int16) | session (int32) | topics (compact array) | tags
      topic:      name (compact string, 12) or id (16 bytes, from 13) | partitions (compact array) | tags
      partition:  index (int32) | error (int16) | high watermark, last stable offset, log start offset (int64 each)
                  | aborted transactions (compact array: producer id, first offset (int64 each), tags)
                  | preferred replica (int32) | records (compact bytes) | tags
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from uuid import UUID

from sparkonce.deadline import Deadline
from sparkonce.errors import CorruptRecordsError, RetriableError, SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import FETCH
from sparkonce.wire.client import Client
from sparkonce.wire.compact import read_unsigned_varint, skip_tags
from sparkonce.wire.connection import Address, Frame
from sparkonce.wire.handles import Handle, per_leader
from sparkonce.wire.kafka_python import build_message, encode_frame
from sparkonce.wire.verdicts import error_for

_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")


class Isolation(IntEnum):
    """Which records are readable; the numbers are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Where to read in one topic partition, and how much at most (a first record batch that is larger still comes)."""

    offset: int
    max_bytes: int = 10_485_760


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a request is answered: at once when `min_bytes` are there, else after `max_wait_ms`."""

    isolation: Isolation = Isolation.READ_COMMITTED
    max_bytes: int = 52_428_800
    min_bytes: int = 1
    max_wait_ms: int = 500


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction that was aborted: drop its producer's record batches from this offset to its abort marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one topic partition gave: record batches as bytes (the last may be cut off), and its offsets."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    records: memoryview


def send_fetch(
    client: Client,
    address: Address,
    wanted: Mapping[TopicPartition, FetchFrom],
    settings: FetchSettings | None = None,
    deadline: Deadline | None = None,
) -> Handle[Fetched]:
    """Ask the common leader of several topic partitions for records, and return at once."""
    chosen = settings or FetchSettings()
    topic_ids = client.topic_ids({tp.topic for tp in wanted})

    def encode(version: int, correlation_id: int, client_id: str) -> Frame:
        body = fetch_body(version, wanted, topic_ids, chosen)
        return [encode_frame(build_message(FETCH.message, version, body), correlation_id, client_id)]

    def read(version: int, body: memoryview) -> dict[TopicPartition, Fetched | SparkonceError]:
        return read_fetch(version, body, topic_ids)

    until = client.deadline(deadline)
    pending = client.send(address, FETCH, encode, until, extra_patience_ms=chosen.max_wait_ms)
    # A client above its quota is answered without any topic partition, and its next request is read later (KIP-219).
    return Handle(client, pending, wanted.keys(), read, left_out=RetriableError)


def fetch(
    client: Client,
    wanted: Mapping[TopicPartition, FetchFrom],
    settings: FetchSettings | None = None,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, Fetched]:
    """Fetch from several topic partitions, wherever they are led; retried until the deadline."""
    until = client.deadline(deadline)
    return per_leader(client, wanted, until, lambda a, group: send_fetch(client, a, group, settings, until))


def fetch_body(
    version: int,
    wanted: Mapping[TopicPartition, FetchFrom],
    topic_ids: Mapping[str, UUID],
    settings: FetchSettings,
) -> dict[str, Any]:
    """A full Fetch request without a session (session id 0, epoch -1)."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, start in wanted.items():
        partition = {
            "partition": tp.partition,
            "current_leader_epoch": -1,
            "fetch_offset": start.offset,
            "partition_max_bytes": start.max_bytes,
        }
        topics.setdefault(tp.topic, []).append(partition)
    by_id = version >= _TOPIC_IDS_SINCE
    body = {
        "max_wait_ms": settings.max_wait_ms,
        "min_bytes": settings.min_bytes,
        "max_bytes": settings.max_bytes,
        "isolation_level": int(settings.isolation),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic_id": topic_ids[topic], "partitions": items} if by_id else {"topic": topic, "partitions": items}
            for topic, items in topics.items()
        ],
    }
    return body if version >= _REPLICA_STATE_SINCE else body | {"replica_id": -1}


def read_fetch(
    version: int, body: memoryview, topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, Fetched | SparkonceError]:
    """Read a Fetch response; the records stay views of `body`."""
    names = {topic_id.bytes: name for name, topic_id in topic_ids.items()}
    try:
        return _read_topics(version, body, names)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise CorruptRecordsError(f"a fetch answer of {len(body):,} bytes cannot be read: {error!r}") from error


def _read_topics(
    version: int, body: memoryview, names: Mapping[bytes, str]
) -> dict[TopicPartition, Fetched | SparkonceError]:
    (whole_error,) = struct.unpack_from(">h", body, 4)
    if whole_error:
        raise error_for(FETCH.name, whole_error, ", ".join(names.values()))
    outcomes: dict[TopicPartition, Fetched | SparkonceError] = {}
    count, position = read_unsigned_varint(body, 10)
    for _ in range(count - 1):
        if version >= _TOPIC_IDS_SINCE:
            name = names[bytes(body[position : position + 16])]
            position += 16
        else:
            size, position = read_unsigned_varint(body, position)
            name = str(body[position : position + size - 1], "utf-8")
            position += size - 1
        partitions, position = read_unsigned_varint(body, position)
        for _ in range(partitions - 1):
            index, outcome, position = _read_partition(name, body, position)
            outcomes[TopicPartition(name, index)] = outcome
        position = skip_tags(body, position)
    return outcomes


def _read_partition(name: str, body: memoryview, position: int) -> tuple[int, Fetched | SparkonceError, int]:
    index, error_code, high_watermark, last_stable, log_start = _PARTITION.unpack_from(body, position)
    aborted, position = _read_aborted(body, position + _PARTITION.size)
    position += 4  # the preferred replica, which is only named to clients that told their rack
    size, position = read_unsigned_varint(body, position)
    length = max(0, size - 1)
    if position + length > len(body):
        raise IndexError(f"records end at {position + length}")
    records = body[position : position + length]
    position = skip_tags(body, position + length)
    if error_code:
        return index, error_for(FETCH.name, error_code, f"{name}-{index}"), position
    return index, Fetched(high_watermark, last_stable, log_start, aborted, records), position


def _read_aborted(body: memoryview, position: int) -> tuple[tuple[AbortedTransaction, ...], int]:
    count, position = read_unsigned_varint(body, position)
    aborted = []
    for _ in range(count - 1):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(body, position)))
        position = skip_tags(body, position + _ABORTED.size)
    return tuple(aborted), position
