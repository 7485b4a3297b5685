"""Places in topic partitions as a user names them: earliest, latest, offsets, timestamps, what a group committed. Pure.

`sparkonce.fetch.lookup` turns them into offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.model import TopicPartition
from sparkonce.wire import OffsetAt

SPECIAL_OFFSETS = (OffsetAt.LATEST, OffsetAt.EARLIEST)
"""Stand for themselves among exact offsets, as in Spark's built-in source: -1 and -2."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last record that may be seen."""


@dataclass(frozen=True, slots=True)
class ExactOffsets:
    """An offset for each topic partition; -1 is latest and -2 earliest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamp:
    """The first record that is not older, of all topic partitions or of each its own."""

    for_all_ms: int | None = None
    of_each_ms: Offsets = field(default_factory=dict)
    latest_if_none: bool = False
    """What to do where all records are older: take latest, or fail."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a consumer group stands; `otherwise` is for topic partitions of which it committed nothing. None: fail."""

    group: str
    otherwise: Earliest | Latest | None = None


Position = Earliest | Latest | ExactOffsets | AtTimestamp | Committed


def require_all_named(named: Offsets, partitions: tuple[TopicPartition, ...], what: str) -> None:
    """Offsets and timestamps of each topic partition must name all that are read, and no others."""
    missing = sorted(set(partitions) - set(named))
    foreign = sorted(set(named) - set(partitions))
    if missing:
        raise UsageError(f"{what} must name every topic partition that is read; missing are {_listed(missing)}")
    if foreign:
        raise UsageError(f"{what} names topic partitions that are not read: {_listed(foreign)}")


def _listed(partitions: list[TopicPartition]) -> str:
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return ", ".join(str(partition) for partition in partitions[:10]) + more
