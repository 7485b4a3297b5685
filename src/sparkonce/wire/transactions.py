"""The requests of a transaction, under both protocols. Which step comes when is the business of the caller.

V1: add every partition before its first record, add a group before its offsets; EndTxn keeps the epoch.
V2 (KIP-890): Produce and TxnOffsetCommit add what they touch; EndTxn answers with the next epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import InDoubtError, RetriableError
from sparkonce.model import NO_PRODUCER, ProducerIdentity, TopicPartition
from sparkonce.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    Api,
    TransactionProtocol,
    end_txn_api,
    txn_offset_commit_api,
)
from sparkonce.wire.client import Client, CoordinatorKind
from sparkonce.wire.connection import Address
from sparkonce.wire.groups import GroupOffset, offset_topics, raise_offset_errors
from sparkonce.wire.verdicts import error_for

_NOT_ATTEMPTED = 55
_LARGEST_TIMEOUT_MS = 2_147_483_647


def init_producer(
    client: Client,
    transactional_id: str | None,
    timeout_ms: int,
    held: ProducerIdentity = NO_PRODUCER,
    deadline: Deadline | None = None,
) -> ProducerIdentity:
    """Get a producer id, or a new epoch for a transactional id.

    With a transactional id and nothing held this takes over from whoever had it: its open transaction is aborted
    first, and an answer means that all markers are written. With `held` the epoch is only raised if that identity is
    still the current one; else a FencedError says that another process has taken over (KIP-360).
    """
    until = client.deadline(deadline)
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms if transactional_id is not None else _LARGEST_TIMEOUT_MS,
        "producer_id": held.producer_id,
        "producer_epoch": held.producer_epoch,
    }
    if transactional_id is None:
        return client.retried(
            until, lambda: _read_identity(client.ask_anyone(INIT_PRODUCER_ID, body, until), "a producer")
        )
    subject = _subject(transactional_id, held)
    return client.with_coordinator(
        CoordinatorKind.TRANSACTION,
        transactional_id,
        until,
        lambda a: _read_identity(client.ask(a, INIT_PRODUCER_ID, body, until), subject),
    )


def add_partitions(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    topic_partitions: Collection[TopicPartition],
    deadline: Deadline | None = None,
) -> None:
    """Add topic partitions to the transaction, all in one request (V1 only)."""
    topics: dict[str, list[int]] = {}
    for tp in topic_partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    body = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.producer_epoch,
        "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }
    until = client.deadline(deadline)

    def attempt(address: Address) -> None:
        response = client.ask(address, ADD_PARTITIONS_TO_TXN, body, until)
        raise_partition_errors(response, _subject(transactional_id, identity))

    client.with_coordinator(CoordinatorKind.TRANSACTION, transactional_id, until, attempt)


def add_offsets(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    group: str,
    deadline: Deadline | None = None,
) -> None:
    """Announce that the transaction will commit offsets of a group (V1 only)."""
    body = _identified(transactional_id, identity) | {"group_id": group}
    _ask_coordinator(client, ADD_OFFSETS_TO_TXN, transactional_id, identity, body, client.deadline(deadline))


def commit_offsets_in_transaction(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    group: str,
    offsets: Mapping[TopicPartition, GroupOffset],
    deadline: Deadline | None = None,
    *,
    protocol: TransactionProtocol | None = None,
) -> None:
    """Make offsets part of the transaction: they become the group's when it commits. Under V1 call `add_offsets` first.

    Goes to the group's coordinator, not the transaction's.
    """
    until = client.deadline(deadline)
    api = txn_offset_commit_api(protocol or client.transaction_protocol(until))
    body = _identified(transactional_id, identity) | {
        "group_id": group,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offset_topics(offsets),
    }

    def attempt(address: Address) -> None:
        raise_offset_errors(client.ask(address, api, body, until), api.name, group)

    client.with_coordinator(CoordinatorKind.GROUP, group, until, attempt)


def end_transaction(
    client: Client,
    transactional_id: str,
    identity: ProducerIdentity,
    deadline: Deadline | None = None,
    *,
    commit: bool,
    protocol: TransactionProtocol | None = None,
) -> ProducerIdentity:
    """Commit or abort, and return the identity to go on with: the next epoch under V2, the same one under V1.

    Whatever leaves the outcome open is an InDoubtError: a lost answer, a coordinator that moved, a deadline.
    """
    until = client.deadline(deadline)
    api = end_txn_api(protocol or client.transaction_protocol(until))
    body = _identified(transactional_id, identity) | {"committed": commit}
    try:
        response = _ask_coordinator(client, api, transactional_id, identity, body, until)
    except RetriableError as error:
        raise InDoubtError(f"{error}. The transaction may or may not have ended", fault=error.fault) from error
    if api.highest < end_txn_api(TransactionProtocol.V2).lowest:
        return identity
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def _ask_coordinator(
    client: Client,
    api: Api,
    transactional_id: str,
    identity: ProducerIdentity,
    body: Mapping[str, Any],
    deadline: Deadline,
) -> Any:
    def attempt(address: Address) -> Any:
        response = client.ask(address, api, body, deadline)
        if response.error_code:
            raise error_for(api.name, response.error_code, _subject(transactional_id, identity))
        return response

    return client.with_coordinator(CoordinatorKind.TRANSACTION, transactional_id, deadline, attempt)


def _identified(transactional_id: str, identity: ProducerIdentity) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }


def _subject(transactional_id: str, identity: ProducerIdentity) -> str:
    if identity == NO_PRODUCER:
        return f"transactional id {transactional_id}"
    return f"transactional id {transactional_id} (producer {identity.producer_id}, epoch {identity.producer_epoch})"


def _read_identity(response: Any, subject: str) -> ProducerIdentity:
    if response.error_code:
        raise error_for(INIT_PRODUCER_ID.name, response.error_code, subject)
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def raise_partition_errors(response: Any, subject: str) -> None:
    """Raise the error of an AddPartitionsToTxn response that explains the others.

    When one partition is refused, the rest answer "not attempted", which by itself tells nothing.
    """
    found = [
        (p.partition_error_code, TopicPartition(topic.name, p.partition_index))
        for topic in response.results_by_topic_v3_and_below
        for p in topic.results_by_partition
        if p.partition_error_code
    ]
    if found:
        code, tp = min(found, key=lambda item: item[0] == _NOT_ATTEMPTED)
        raise error_for(ADD_PARTITIONS_TO_TXN.name, code, f"{tp} of {subject}")
