"""What a source reads and in which portions: every setting of the fetch layer with its default, once."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkonce.fetch.ahead import ReadSettings
from sparkonce.fetch.positions import Position
from sparkonce.fetch.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """A source, without how its cluster is reached."""

    subscription: Subscription
    starting: Position
    ending: Position | None = None
    max_offsets: int | None = None
    """How much a micro-batch reads at most."""
    max_bytes: int | None = None
    """The same in bytes as they lie in the log, that is compressed; an estimate. The smaller of the two limits wins."""
    min_offsets: int | None = None
    """Wait until there is so much, but no longer than `max_trigger_delay_ms`."""
    max_trigger_delay_ms: int = 15 * 60 * 1000
    min_partitions: int | None = None
    max_partitions: int | None = None
    """How many tasks read a micro-batch."""
    max_records_per_partition: int | None = None
    discovery_interval_ms: int = 10_000
    """How often new topic partitions are looked for."""
    max_event_time_drift_ms: int | None = None
    """How much newer than the oldest unread record a micro-batch may read; None: no matter how much."""
    idle_timeout_ms: int = 0
    """How long a topic partition without records still holds back the others, at the time of its last one."""
    failover_ms: int = 15_000
    """How long a log may end before what was read of it: a new leader may tell a lower end for a while."""
    commit_group: str | None = None
    """A group that is shown what Spark has committed; None: nobody is."""
    read: ReadSettings = field(default_factory=ReadSettings)
