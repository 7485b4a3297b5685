"""The sink's options: every name, every default, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.options import ConnectionOptions, reject_unknown
from sparkonce.records import BATCH_BYTES_MAX, Codec, Partitioner
from sparkonce.send import IN_FLIGHT_MAX

GUARANTEES = ("exactly-once", "at-least-once", "none")
PARTITIONERS = ("murmur2", "fixed")
KAFKA_PREFIX = "kafka."
_LARGEST = 2**31 - 1
_RANGES = {
    "acks": (-1, 1),
    "batch_bytes": (1, _LARGEST),
    "requests_in_flight": (1, IN_FLIGHT_MAX),
    "transaction_timeout_ms": (1, _LARGEST),
    "retries": (0, _LARGEST),
    "deadline_ms": (1, _LARGEST),
    "grants_port": (0, 65_535),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a `KafkaSink` writes."""

    connection: ConnectionOptions
    topic: str | None = None
    """Where rows go that have no `topic` column."""
    guarantee: str = "exactly-once"
    transactional_id: str | None = None
    """One per query; required for exactly-once."""
    compression: str = "lz4"
    acks: int = -1
    """-1: all in-sync replicas; exactly-once and at-least-once need it."""
    batch_bytes: int = BATCH_BYTES_MAX
    """The largest record batch after compression; the topic's max.message.bytes must allow it."""
    requests_in_flight: int = IN_FLIGHT_MAX
    transaction_timeout_ms: int = 60_000
    """How long a transaction may be open; doubled when one expires, up to the broker's maximum."""
    retries: int = 3
    """How often a micro-batch whose transaction was aborted is run again."""
    deadline_ms: int = 120_000
    """How long a sending task keeps trying."""
    partitioner: str | Partitioner = "murmur2"
    """murmur2: the column `partition` where it is not null, else by key as the Java client does. fixed: always the
    column `partition`. Or a function of (Arrow batch, number of partitions) that gives an integer column."""
    one_stage: bool = True
    """Encode and send in one stage where there is a core for every Spark partition. Elsewhere, and if False, a shuffle
    brings the batches of each topic partition to the task that sends them."""
    offsets_group: str | None = None
    """A consumer group that is given the source's offsets, inside the transaction."""
    on_missing_marker: str = "stop"
    """When it cannot be known whether a batch is committed: stop, or take it as 'committed' or 'not-committed'."""
    grants_host: str | None = None
    """Where the executors reach the driver; Spark's own setting by default."""
    grants_port: int = 0

    def __post_init__(self) -> None:
        _require_one_of("guarantee", self.guarantee, GUARANTEES)
        _require_one_of("compression", self.compression, [codec.name for codec in Codec])
        if not callable(self.partitioner):
            _require_one_of("partitioner", self.partitioner, PARTITIONERS)
        _require_one_of("on_missing_marker", self.on_missing_marker, ("stop", "committed", "not-committed"))
        if self.guarantee == "exactly-once" and not self.transactional_id:
            raise UsageError("exactly-once needs a transactional_id: a name that no other query uses")
        if self.guarantee != "none" and self.acks != -1:
            raise UsageError(f"guarantee {self.guarantee!r} needs acks=-1 (all in-sync replicas), not {self.acks}")
        if not isinstance(self.one_stage, bool):
            raise UsageError(f"one_stage must be True or False, not {self.one_stage!r}")
        for name, (lowest, highest) in _RANGES.items():
            _require_within(name, getattr(self, name), lowest, highest)

    @property
    def codec(self) -> Codec:
        """The compression as the records layer knows it."""
        return Codec[self.compression]


def sink_options(bootstrap_servers: str, given: Mapping[str, Any]) -> SinkOptions:
    """Options as a user writes them: names of this class, and `kafka.*` properties of the client."""
    properties = {name.removeprefix(KAFKA_PREFIX): str(v) for name, v in given.items() if name.startswith(KAFKA_PREFIX)}
    own = {name: value for name, value in given.items() if not name.startswith(KAFKA_PREFIX)}
    known = [field.name for field in fields(SinkOptions) if field.name != "connection"]
    reject_unknown(own, known, what="sink option")
    return SinkOptions(connection=ConnectionOptions.from_properties(bootstrap_servers, properties), **own)


def _require_one_of(name: str, value: str, allowed: tuple[str, ...] | list[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def _require_within(name: str, value: Any, lowest: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise UsageError(f"{name} must be a whole number from {lowest} to {highest}, not {value!r}")
