"""What the tools must know of a query: small values, without any live resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkonce.commit import Participant
from sparkonce.fetch import Subscription
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTarget:
    """What is read."""

    connection: ConnectionOptions
    subscription: Subscription
    isolation: Isolation = Isolation.READ_COMMITTED
    start_group: str | None = None
    """The group whose offsets the first start takes, if it does."""
    shown_group: str | None = None
    """The group that is shown how far Spark has committed, outside of transactions."""
    dead_letter_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkTarget:
    """Where the Kafka sink writes."""

    connection: ConnectionOptions
    topic: str | None = None
    guarantee: str = "exactly-once"
    transactional_id: str | None = None
    transaction_timeout_ms: int
    batch_bytes: int
    offsets_group: str | None = None

    @property
    def exactly_once(self) -> bool:
        """Whether it runs transactions."""
        return self.guarantee == "exactly-once" and self.transactional_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTarget:
    """A database or a folder that gets rows."""

    name: str
    participant: Participant | None = None
    """None if its driver is not installed; then `problem` says so."""
    prepares: bool = False
    """Whether it needs prepared transactions of its server."""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query, whoever describes it."""

    name: str
    checkpoint: str
    source: SourceTarget
    sink: KafkaSinkTarget | None = None
    stores: tuple[StoreTarget, ...] = ()
    branches: int = 1
    """How many prepared transactions a micro-batch has in a store."""
    master: str = "local[*]"

    @property
    def transactional_id(self) -> str | None:
        """The id under which micro-batches are committed to Kafka, if they are."""
        return self.sink.transactional_id if self.sink is not None and self.sink.exactly_once else None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that say how far the query is, or where it begins."""
        found = (self.sink.offsets_group if self.sink else None, self.source.shown_group, self.source.start_group)
        return tuple(dict.fromkeys(group for group in found if group is not None))


Record = dict[str, Any]
"""One JSON object for programs."""
