"""Drivers for the tests of transactions: a client with its transaction, and a micro-batch as the sink runs it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.errors import AbortableError, InDoubtError, RetriableError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.send import Receipt, Sender, SendSettings
from sparkonce.transaction import KafkaTransaction, Marker, Owner, TransactionSettings, kafka_transaction
from sparkonce.wire import Client, GroupOffset, describe_transaction, end_transaction
from tests.broker.wire_samples import client_of, record_batch

TIMEOUT_MS = 60_000


@dataclass
class Driver:
    """One driver process, as far as Kafka can see it."""

    client: Client
    transaction: KafkaTransaction
    identity: ProducerIdentity | None = None

    @property
    def transactional_id(self) -> str:
        return self.transaction.settings.transactional_id

    def begin(self, timeout_ms: int = TIMEOUT_MS) -> None:
        self.identity = self.transaction.begin(timeout_ms)

    def send(self, values: Mapping[TopicPartition, list[bytes]]) -> list[Receipt]:
        """One record batch a partition, as tasks would send them."""
        assert self.identity is not None
        self.transaction.add_partitions(values.keys())
        sender = Sender(self.client, self.settings())
        for tp, of_partition in values.items():
            sender.send(tp, record_batch(of_partition))
        return sender.finish()

    def settings(self) -> SendSettings:
        assert self.identity is not None
        return SendSettings(self.identity, self.transactional_id, self.transaction.protocol)

    def marker(self, batch_id: int) -> Marker:
        assert self.identity is not None
        return Marker(batch_id, self.transaction.settings.owner, self.identity, f"digest-{batch_id}")

    def pre_commit(
        self, batch_id: int, offsets: Mapping[str, Mapping[TopicPartition, GroupOffset]] | None = None
    ) -> None:
        self.transaction.pre_commit(self.marker(batch_id), offsets or {})

    def end(self, *, commit: bool) -> None:
        """Commit or abort, whatever comes of it."""
        if commit:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def run(self, batch_id: int, values: Mapping[TopicPartition, list[bytes]]) -> bool:
        """One attempt at a micro-batch, with the sink's way of handling errors."""
        self.begin()
        try:
            self.send(values)
            self.pre_commit(batch_id)
        except (AbortableError, RetriableError):
            self.transaction.abort()
            return False
        return self.transaction.commit()


@contextmanager
def driver(
    broker: DevBroker, transactional_id: str, home: TopicPartition, host: str = "host-a", **options: Any
) -> Iterator[Driver]:
    """A driver that has not claimed its id yet."""
    with client_of(broker, **options) as client:
        owner = Owner(host, 4711, f"query-of-{host}")
        yield Driver(client, KafkaTransaction(client, TransactionSettings(transactional_id, home, owner)))


def new_id() -> str:
    return f"tx-{uuid.uuid4()}"


def lose_end(
    monkeypatch: pytest.MonkeyPatch, client: Client, *, applied: bool, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """From now on this client's EndTxn gets no answer, whether or not it reaches the broker."""

    def losing(caller: Client, *arguments: Any, **options: Any) -> ProducerIdentity:
        if caller is not client:
            return end_transaction(caller, *arguments, **options)
        if applied:
            end_transaction(caller, *arguments, **options)
        meanwhile()
        raise InDoubtError("EndTxn got no answer")

    monkeypatch.setattr(kafka_transaction, "end_transaction", losing)


def after_looking(monkeypatch: pytest.MonkeyPatch, client: Client, meanwhile: Callable[[], object]) -> None:
    """Something happens once, between this client's look at its transactional id and what it does next."""
    left = [meanwhile]

    def looking(caller: Client, *arguments: Any, **options: Any) -> Any:
        seen = describe_transaction(caller, *arguments, **options)
        if caller is client and left:
            left.pop()()
        return seen

    monkeypatch.setattr(kafka_transaction, "describe_transaction", looking)


def written(one: Driver, home: TopicPartition) -> None:
    """Begins a transaction and sends to it."""
    one.begin()
    one.send({home: [b"of A"]})


def pre_committed(one: Driver, home: TopicPartition) -> None:
    """Has sent everything, and the marker."""
    written(one, home)
    one.pre_commit(0)


@contextmanager
def rivals(broker: DevBroker, home: TopicPartition) -> Iterator[tuple[Driver, Driver]]:
    """Two drivers of one transactional id, on host-a and host-b."""
    transactional_id = new_id()
    with (
        driver(broker, transactional_id, home, "host-a") as one,
        driver(broker, transactional_id, home, "host-b") as two,
    ):
        yield one, two
