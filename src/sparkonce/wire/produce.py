"""Sending finished record batches to the leaders of topic partitions.

The bytes are sent as they are, without a copy; what is in them is the business of `sparkonce.records`. Several
requests may be under way at once: the broker handles those of one connection in the order in which they were sent.

A Produce request of version 9 to 13, after its header (written by hand because the generated encoder copies the
records twice):

    transactional id (compact string) | acks (int16) | timeout ms (int32) | topics (compact array) | tags
      topic:      name (compact string, up to 12) or id (16 bytes, from 13) | partitions (compact array) | tags
      partition:  index (int32) | records (compact bytes) | tags
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sparkonce.deadline import Deadline
from sparkonce.errors import InDoubtError, RetriableError, SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import PRODUCE, Api, TransactionProtocol, produce_api
from sparkonce.wire.client import Client
from sparkonce.wire.cluster import NO_TOPIC_ID
from sparkonce.wire.compact import NO_TAGS, compact_string, unsigned_varint
from sparkonce.wire.connection import Address, Buffer, Frame
from sparkonce.wire.handles import Handle, per_leader
from sparkonce.wire.kafka_python import decode_response, encode_header
from sparkonce.wire.verdicts import error_for

ALL_IN_SYNC = -1
LEADER_ONLY = 1
NO_ACKNOWLEDGEMENT = 0

_TOPIC_IDS_SINCE = 13
_AFTER_WRITING = frozenset({7, 20})


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the leader wrote a record batch. Offsets are -1 when nothing was acknowledged, or for a duplicate."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


_UNACKNOWLEDGED = Appended(-1, -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSettings:
    """How records are sent.

    `protocol` is asked from the cluster when it is left out; pass it on where a driver has already decided.
    `idempotent` says that the record batches carry a producer id, so that sending them again cannot duplicate them.
    """

    acks: int = ALL_IN_SYNC
    transactional_id: str | None = None
    protocol: TransactionProtocol | None = None
    idempotent: bool = True


def send_produce(
    client: Client,
    address: Address,
    batches: Mapping[TopicPartition, Buffer],
    settings: ProduceSettings | None = None,
    deadline: Deadline | None = None,
) -> Handle[Appended]:
    """Send one record batch for each topic partition to their common leader, and return at once."""
    chosen = settings or ProduceSettings()
    until = client.deadline(deadline)
    api = _api(client, chosen, until)
    topic_ids = client.topic_ids({tp.topic for tp in batches})
    timeout_ms = client.options.request_timeout_ms

    def encode(version: int, correlation_id: int, client_id: str) -> Frame:
        header = encode_header(api.message, version, correlation_id, client_id)
        return produce_frame(header, version, batches, topic_ids, chosen, timeout_ms)

    def read(version: int, body: memoryview) -> dict[TopicPartition, Appended | SparkonceError]:
        if chosen.acks == NO_ACKNOWLEDGEMENT:
            return dict.fromkeys(batches, _UNACKNOWLEDGED)
        outcomes = read_produce(decode_response(api.message, version, body), topic_ids)
        return outcomes if chosen.idempotent else {tp: _doubted(outcome) for tp, outcome in outcomes.items()}

    expects_answer = chosen.acks != NO_ACKNOWLEDGEMENT
    pending = client.send(address, api, encode, until, expects_answer=expects_answer)
    return Handle(client, pending, batches.keys(), read)


def produce(
    client: Client,
    batches: Mapping[TopicPartition, Buffer],
    settings: ProduceSettings | None = None,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, Appended]:
    """Send one record batch for each topic partition, wherever they are led; the same bytes again until they are in."""
    chosen = settings or ProduceSettings()
    until = client.deadline(deadline)

    return per_leader(client, batches, until, lambda a, group: send_produce(client, a, group, chosen, until))


def _api(client: Client, settings: ProduceSettings, deadline: Deadline) -> Api:
    if settings.transactional_id is None:
        return replace(PRODUCE, repeatable=settings.idempotent)
    protocol = settings.protocol or client.transaction_protocol(deadline)
    return produce_api(protocol, transactional=True)


def _doubted(outcome: Appended | SparkonceError) -> Appended | SparkonceError:
    """Without a producer id the broker cannot tell a repetition, so what may have been written is in doubt."""
    fault = outcome.fault if isinstance(outcome, RetriableError) else None
    if fault is not None and fault.code in _AFTER_WRITING:
        return InDoubtError(f"{outcome} The records may or may not be in", fault=fault)
    return outcome


def produce_frame(
    header: bytes,
    version: int,
    batches: Mapping[TopicPartition, Buffer],
    topic_ids: Mapping[str, UUID],
    settings: ProduceSettings,
    timeout_ms: int,
) -> list[Buffer]:
    """The whole request as pieces; the record batches are among them, not copied."""
    topics: dict[str, list[tuple[int, Buffer]]] = {}
    for tp, records in batches.items():
        topics.setdefault(tp.topic, []).append((tp.partition, records))
    glue = bytearray(header + compact_string(settings.transactional_id))
    glue += struct.pack(">hi", settings.acks, timeout_ms) + unsigned_varint(len(topics) + 1)
    pieces: list[Buffer] = []
    for topic, partitions in topics.items():
        glue += topic_ids[topic].bytes if version >= _TOPIC_IDS_SINCE else compact_string(topic)
        glue += unsigned_varint(len(partitions) + 1)
        for index, records in partitions:
            glue += struct.pack(">i", index) + unsigned_varint(_size(records) + 1)
            pieces += [glue, records]
            glue = bytearray(NO_TAGS)
        glue += NO_TAGS
    glue += NO_TAGS
    pieces.append(glue)
    return [struct.pack(">i", sum(_size(piece) for piece in pieces)), *pieces]


def _size(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


def read_produce(response: Any, topic_ids: Mapping[str, UUID]) -> dict[TopicPartition, Appended | SparkonceError]:
    """Read a Produce response; topics named by id are given their names back."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    outcomes: dict[TopicPartition, Appended | SparkonceError] = {}
    for topic in response.responses:
        name = topic.name or names[topic.topic_id or NO_TOPIC_ID]
        for p in topic.partition_responses:
            tp = TopicPartition(name, p.index)
            if p.error_code:
                outcomes[tp] = error_for(PRODUCE.name, p.error_code, str(tp), _detail(p))
            else:
                outcomes[tp] = Appended(p.base_offset, p.log_append_time_ms, p.log_start_offset)
    return outcomes


def _detail(partition: Any) -> str | None:
    said = [partition.error_message] if partition.error_message else []
    said += [f"record {e.batch_index}: {e.batch_index_error_message}" for e in (partition.record_errors or ())[:3]]
    return "; ".join(said) or None
