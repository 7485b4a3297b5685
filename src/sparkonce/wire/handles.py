"""Requests to the leaders of topic partitions: under way as handles, or as one call over all leaders with retries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from sparkonce.deadline import Deadline
from sparkonce.errors import AbortableError, Fault, RetriableError, SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.wire.client import Client
from sparkonce.wire.connection import Address, Pending, unreadable_answer

R = TypeVar("R")
Item = TypeVar("Item")


class Handle(Generic[R]):
    """A request to one leader under way. `result` gives each topic partition its value or its error.

    A lost connection is an error of every topic partition, like any other: the same bytes may be sent again if it is
    a RetriableError. What a topic partition that the answer does not name means is up to the request: `left_out`.
    """

    def __init__(
        self,
        client: Client,
        pending: Pending,
        topic_partitions: Collection[TopicPartition],
        read: Callable[[int, memoryview], dict[TopicPartition, R | SparkonceError]],
        left_out: type[SparkonceError] = AbortableError,
    ) -> None:
        self.pending = pending
        self._client = client
        self._topic_partitions = tuple(topic_partitions)
        self._read = read
        self._left_out = left_out
        self._outcomes: dict[TopicPartition, R | SparkonceError] | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known, so that `result` will not wait."""
        return self.pending.done

    def result(self, deadline: Deadline | None = None) -> dict[TopicPartition, R | SparkonceError]:
        """Wait for the outcome. Raises only when the deadline comes first."""
        if self._outcomes is None:
            self._client.connections.wait_any([self.pending], self._client.deadline(deadline))
            self._outcomes = self._read_outcomes()
            for topic_partition, outcome in self._outcomes.items():
                if isinstance(outcome, SparkonceError):
                    self._client.note_leader_error(topic_partition, outcome)
        return self._outcomes

    def _read_outcomes(self) -> dict[TopicPartition, R | SparkonceError]:
        try:
            outcomes = self._read(self.pending.version, self.pending.body())
            return outcomes | {tp: self._unnamed(tp) for tp in self._topic_partitions if tp not in outcomes}
        except SparkonceError as error:
            return dict.fromkeys(self._topic_partitions, error)
        except ValueError as error:
            return dict.fromkeys(self._topic_partitions, unreadable_answer(self.pending, error))

    def _unnamed(self, topic_partition: TopicPartition) -> SparkonceError:
        pending = self.pending
        # The broker answered, and without an error: whoever led the topic partition still does.
        fault = Fault(pending.api.name, 0, "NONE", str(topic_partition))
        return self._left_out(f"{pending.connection.address} left {topic_partition} out of its answer", fault=fault)


def wait_any(client: Client, handles: Iterable[Handle[Any]], deadline: Deadline | None = None) -> None:
    """Wait until at least one of the handles is done."""
    client.connections.wait_any([handle.pending for handle in handles], client.deadline(deadline))


def per_leader(
    client: Client,
    items: Mapping[TopicPartition, Item],
    deadline: Deadline,
    start: Callable[[Address, dict[TopicPartition, Item]], Handle[R]],
) -> dict[TopicPartition, R]:
    """Send each item to the leader of its topic partition, all leaders at once, and retry what may pass."""
    results: dict[TopicPartition, R] = {}

    def once() -> None:
        todo = {tp: item for tp, item in items.items() if tp not in results}
        failures: list[SparkonceError] = []
        for handle in _start_all(client, todo, deadline, start, failures):
            for tp, outcome in handle.result(deadline).items():
                if isinstance(outcome, SparkonceError):
                    failures.append(outcome)
                else:
                    results[tp] = outcome
        if failures:
            # What cannot pass is raised before what may pass; both only after the other answers are in.
            raise min(failures, key=lambda failure: isinstance(failure, RetriableError))

    client.retried(deadline, once)
    return {tp: results[tp] for tp in items}


def _start_all(
    client: Client,
    items: Mapping[TopicPartition, Item],
    deadline: Deadline,
    start: Callable[[Address, dict[TopicPartition, Item]], Handle[R]],
    failures: list[SparkonceError],
) -> list[Handle[R]]:
    groups: dict[Address, dict[TopicPartition, Item]] = {}
    for tp, address in client.leaders(items.keys(), deadline).items():
        groups.setdefault(address, {})[tp] = items[tp]
    handles = []
    for address, group in groups.items():
        try:
            handles.append(start(address, group))
        except RetriableError as error:
            failures.append(error)
            for tp in group:
                client.note_leader_error(tp, error)
    return handles
