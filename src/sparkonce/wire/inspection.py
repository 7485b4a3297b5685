"""Looking at transactions and producers from outside (KIP-664), for people and for checks. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.apis import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from sparkonce.wire.client import Client, CoordinatorKind, message_encoder
from sparkonce.wire.connection import Address
from sparkonce.wire.handles import Handle, per_leader
from sparkonce.wire.kafka_python import decode_response
from sparkonce.wire.verdicts import error_for


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it. `started_ms` is -1 when no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a coordinator's list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What the leader of a topic partition remembers of a producer. The start offset is -1 when none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


def describe_transaction(
    client: Client, transactional_id: str, deadline: Deadline | None = None
) -> TransactionDescription:
    """Describe one transactional id; a UsageError if the cluster does not know it."""
    until = client.deadline(deadline)
    body = {"transactional_ids": [transactional_id]}
    return client.with_coordinator(
        CoordinatorKind.TRANSACTION,
        transactional_id,
        until,
        lambda a: read_description(client.ask(a, DESCRIBE_TRANSACTIONS, body, until)),
    )


def read_description(response: Any) -> TransactionDescription:
    """Read a DescribeTransactions response for one id."""
    state = response.transaction_states[0]
    if state.error_code:
        subject = f"transactional id {state.transactional_id}"
        raise error_for(DESCRIBE_TRANSACTIONS.name, state.error_code, subject)
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(TopicPartition(t.topic, index) for t in state.topics for index in t.partitions),
    )


def list_transactions(
    client: Client,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    deadline: Deadline | None = None,
) -> list[TransactionListing]:
    """List the transactional ids of all coordinators, that is of all brokers."""
    until = client.deadline(deadline)
    body = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
    listings: list[TransactionListing] = []
    for address in client.metadata((), until).brokers.values():
        listings += client.retried(until, partial(_list_on, client, address, body, until))
    return sorted(listings, key=lambda listing: listing.transactional_id)


def _list_on(client: Client, address: Address, body: dict[str, Any], deadline: Deadline) -> list[TransactionListing]:
    response = client.ask(address, LIST_TRANSACTIONS, body, deadline)
    if response.error_code:
        raise error_for(LIST_TRANSACTIONS.name, response.error_code, str(address))
    return [
        TransactionListing(s.transactional_id, s.producer_id, s.transaction_state, address.broker_id)
        for s in response.transaction_states
    ]


def describe_producers(
    client: Client, topic_partitions: Collection[TopicPartition], deadline: Deadline | None = None
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """The producers that the leaders remember, with their last sequence numbers."""
    until = client.deadline(deadline)

    def start(address: Address, group: dict[TopicPartition, None]) -> Handle[tuple[ProducerState, ...]]:
        topics: dict[str, list[int]] = {}
        for tp in group:
            topics.setdefault(tp.topic, []).append(tp.partition)
        body = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]}
        pending = client.send(address, DESCRIBE_PRODUCERS, message_encoder(DESCRIBE_PRODUCERS, body), until)
        return Handle(client, pending, group.keys(), _read_producers)

    return per_leader(client, dict.fromkeys(topic_partitions), until, start)


def _read_producers(version: int, body: memoryview) -> dict[TopicPartition, tuple[ProducerState, ...] | SparkonceError]:
    response = decode_response(DESCRIBE_PRODUCERS.message, version, body)
    outcomes: dict[TopicPartition, tuple[ProducerState, ...] | SparkonceError] = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                outcomes[tp] = error_for(DESCRIBE_PRODUCERS.name, p.error_code, str(tp), p.error_message)
            else:
                outcomes[tp] = tuple(_read_producer(state) for state in p.active_producers)
    return outcomes


def _read_producer(state: Any) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
