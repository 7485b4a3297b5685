"""A client of one cluster: who leads, who coordinates, and calls that are retried until a deadline.

Blocking, for one thread at a time, in the process that made it. Request modules (`produce`, `fetch`, `transactions` …)
are functions that take a client; what they share is here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from sparkonce.deadline import Deadline, backoff_ms
from sparkonce.errors import RetriableError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.wire.apis import FIND_COORDINATOR, METADATA, Api, BrokerFeatures, TransactionProtocol
from sparkonce.wire.cluster import ClusterMetadata, LeaderCache, metadata_body, read_metadata
from sparkonce.wire.connection import Address, Frame, Pending, unreadable_answer
from sparkonce.wire.connections import Connections, Encoder
from sparkonce.wire.kafka_python import build_message, decode_response, encode_frame
from sparkonce.wire.verdicts import COORDINATOR_MOVED, LEADER_MOVED, UNKNOWN_TOPIC_OR_PARTITION, error_for

T = TypeVar("T")

# A topic that was just created takes a moment to be known everywhere. One that is still unknown after that does not
# exist, and waiting for the whole deadline would only hide it.
MISSING_TOPIC_PATIENCE_MS = 5_000
_LEAST_SHARE_MS = 1_000


class CoordinatorKind(IntEnum):
    """What a coordinator is asked for; the numbers are the protocol's."""

    GROUP = 0
    TRANSACTION = 1


class Client:
    """Connections to one cluster and what is known about it. Use it as a context manager."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.connections = Connections(options)
        self._leaders = LeaderCache()
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}
        self._features: BrokerFeatures | None = None
        self._bootstrap = tuple(Address(host, port) for host, port in options.bootstrap_addresses)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        self.connections.close()

    @property
    def cluster_name(self) -> str:
        """The bootstrap servers, to name the cluster in errors."""
        return ",".join(str(address) for address in self._bootstrap)

    def deadline(self, deadline: Deadline | None = None) -> Deadline:
        """The given deadline, or the default one starting now."""
        return deadline or Deadline.after_ms(self.options.deadline_ms)

    def features(self, deadline: Deadline | None = None) -> BrokerFeatures:
        """What the first broker that answered said about the cluster."""
        if self._features is None:
            self.metadata((), deadline)
        if self._features is None:
            raise UsageError(f"{self.cluster_name} did not describe its features")
        return self._features

    def transaction_protocol(self, deadline: Deadline | None = None) -> TransactionProtocol:
        """The transaction protocol of the cluster. Fixed for a client's life; a cluster still serves the older one."""
        return self.features(deadline).transaction_protocol

    # One request.

    def send(
        self,
        address: Address,
        api: Api,
        encode: Encoder,
        deadline: Deadline,
        *,
        expects_answer: bool = True,
        extra_patience_ms: int = 0,
    ) -> Pending:
        """Send one request without waiting for its answer."""
        return self.connections.send(
            address,
            api,
            encode,
            deadline,
            expects_answer=expects_answer,
            extra_patience_ms=extra_patience_ms,
        )

    def ask(self, address: Address, api: Api, body: Mapping[str, Any], deadline: Deadline) -> Any:
        """One request, one answer, no retry."""
        pending = self.send(address, api, message_encoder(api, body), deadline)
        self.connections.wait_any([pending], deadline)
        try:
            return decode_response(api.message, pending.version, pending.body())
        except ValueError as error:
            raise unreadable_answer(pending, error) from error

    # Retries.

    def retried(self, deadline: Deadline, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it raises no RetriableError, with growing pauses, until the deadline."""
        began = time.monotonic()
        missing_since: float | None = None
        tries = 0
        while True:
            try:
                return attempt()
            except RetriableError as error:
                tries += 1
                pause = self._pause_seconds(tries)
                now = time.monotonic()
                missing_since = (missing_since or now) if is_missing_topic(error) else None
                if missing_since is not None and (now - missing_since) * 1000 >= MISSING_TOPIC_PATIENCE_MS:
                    raise UsageError(str(error), fault=error.fault) from error
                if deadline.remaining_seconds <= pause:
                    text = f"{error} (gave up after {tries} attempts in {now - began:.1f} s)"
                    raise RetriableError(text, fault=error.fault) from error
            self.connections.pause(pause)

    def _pause_seconds(self, tries: int) -> float:
        first_ms, max_ms = self.options.retry_backoff_ms, self.options.retry_backoff_max_ms
        return backoff_ms(tries - 1, first_ms, max_ms, random.random()) / 1000  # noqa: S311 - not a secret

    # The cluster.

    def metadata(self, topics: Sequence[str] | None, deadline: Deadline | None = None) -> ClusterMetadata:
        """Describe all topics (None) or some. Topics that cannot be described are in `problems`, not raised."""
        until = self.deadline(deadline)
        return self.retried(until, lambda: self._refresh(topics, until))

    def _refresh(self, topics: Sequence[str] | None, deadline: Deadline) -> ClusterMetadata:
        response = self.ask_anyone(METADATA, metadata_body(topics), deadline)
        metadata = read_metadata(response, self.cluster_name)
        self._leaders.update(metadata)
        return metadata

    def ask_anyone(self, api: Api, body: Mapping[str, Any], deadline: Deadline) -> Any:
        """Ask whichever broker answers; before the first answer ever, that is the bootstrap."""
        if not self._leaders.brokers:
            return self._ask_bootstrap(api, body, deadline)
        return self._ask_one_of(self._candidates(), api, body, deadline)

    def _ask_bootstrap(self, api: Api, body: Mapping[str, Any], deadline: Deadline) -> Any:
        limit = deadline.sooner_ms(self.options.bootstrap_timeout_ms)
        try:
            return self.retried(limit, lambda: self._ask_one_of(self._bootstrap, api, body, limit))
        except RetriableError as error:
            checks = "Check bootstrap_servers, security.protocol, and that the brokers run"
            text = f"no bootstrap server could be used. {error}. {checks}"
            raise UsageError(text, fault=error.fault) from error

    def _candidates(self) -> list[Address]:
        """Those with an idle connection first, then the rest of the cluster, then the bootstrap servers."""
        idle = list(self.connections.idle_addresses())
        others = [address for address in self._leaders.brokers.values() if address not in idle]
        random.shuffle(others)
        return [*idle, *others, *self._bootstrap]

    def _ask_one_of(self, addresses: Sequence[Address], api: Api, body: Mapping[str, Any], deadline: Deadline) -> Any:
        reasons: dict[str, RetriableError] = {}
        for index, address in enumerate(addresses):
            # None may use up the time of those after it.
            share_ms = max(_LEAST_SHARE_MS, deadline.remaining_ms // (len(addresses) - index))
            try:
                answer = self.ask(address, api, body, deadline.sooner_ms(share_ms))
            except RetriableError as error:
                reasons.setdefault(str(error), error)
                continue
            self._features = self._features or self.connections.features(address)
            return answer
        first = next(iter(reasons.values()), None)
        raise RetriableError("; ".join(reasons), fault=first.fault if first else None)

    def leader(self, topic_partition: TopicPartition, deadline: Deadline | None = None) -> Address:
        """The broker that leads a topic partition."""
        until = self.deadline(deadline)
        return self.retried(until, lambda: self.leaders([topic_partition], until)[topic_partition])

    def leaders(
        self, topic_partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Address]:
        """The leaders of several topic partitions, with one metadata request at most; no retry."""
        unknown = {tp.topic for tp in topic_partitions if self._leaders.leader(tp) is None}
        if unknown:
            metadata = self._refresh(sorted(unknown), deadline)
            for problem in metadata.problems.values():
                raise problem
        found: dict[TopicPartition, Address] = {}
        for tp in topic_partitions:
            address = self._leaders.leader(tp)
            if address is None:
                raise self._leaders.why_unknown(tp, self.cluster_name)
            found[tp] = address
        return found

    def broker(self, broker_id: int, deadline: Deadline) -> Address:
        """The address of a broker; no retry."""
        found = self._leaders.brokers.get(broker_id) or self._refresh((), deadline).brokers.get(broker_id)
        if found is None:
            raise UsageError(f"{self.cluster_name} has no broker {broker_id}, or it is down")
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The ids of topics whose leaders were looked up before."""
        return {topic: self._leaders.topic_id(topic) for topic in topics}

    def note_leader_error(self, topic_partition: TopicPartition, error: SparkonceError) -> None:
        """Look the leader up again next time, if the error says that it moved or cannot be reached."""
        if error.fault is None or error.fault.code is None or error.fault.code in LEADER_MOVED:
            self._leaders.doubt(topic_partition)

    # Coordinators.

    def coordinator(self, kind: CoordinatorKind, key: str, deadline: Deadline) -> Address:
        """The coordinator of a group or a transactional id; no retry."""
        if (kind, key) not in self._coordinators:
            body = {"key_type": int(kind), "coordinator_keys": [key]}
            response = self.ask_anyone(FIND_COORDINATOR, body, deadline)
            found = response.coordinators[0]
            if found.error_code:
                subject = f"{kind.name.lower()} {key}"
                raise error_for(FIND_COORDINATOR.name, found.error_code, subject, found.error_message)
            self._coordinators[kind, key] = Address(found.host, found.port, found.node_id)
        return self._coordinators[kind, key]

    def with_coordinator(
        self, kind: CoordinatorKind, key: str, deadline: Deadline, attempt: Callable[[Address], T]
    ) -> T:
        """Call `attempt` with the coordinator; look it up again when it moved or fell silent."""

        def once() -> T:
            address = self.coordinator(kind, key, deadline)
            try:
                return attempt(address)
            except SparkonceError as error:
                if error.fault is None or error.fault.code is None or error.fault.code in COORDINATOR_MOVED:
                    self._coordinators.pop((kind, key), None)
                raise

        return self.retried(deadline, once)


def message_encoder(api: Api, body: Mapping[str, Any]) -> Encoder:
    """An encoder for a request whose body is the same in every version."""

    def encode(version: int, correlation_id: int, client_id: str) -> Frame:
        return [encode_frame(build_message(api.message, version, body), correlation_id, client_id)]

    return encode


def is_missing_topic(error: SparkonceError) -> bool:
    """Whether a broker said that it does not know the topic or partition."""
    return error.fault is not None and error.fault.code == UNKNOWN_TOPIC_OR_PARTITION
