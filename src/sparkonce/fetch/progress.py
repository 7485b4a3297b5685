"""How far a streaming query has read: the offset that Spark keeps in its log for us. Pure.

Spark's log has the end of every micro-batch and the start of none: the start of the first would be asked for again
after a crash, and "latest" or "committed" may have moved by then. So the end offset also says where each topic
partition was first read, and where it is to stop, if it is. An unstarted query has no offsets at all; the first plan
always differs from that, so that Spark writes it down at once, even when there is nothing to read yet.

Offsets of Spark's built-in source, {"topic": {"0": 5}}, are understood too: a query changes its format name, keeps its
checkpoint and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets, flat, nested
from sparkonce.fetch.ranges import OffsetRange
from sparkonce.model import TopicPartition

VERSION = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Where each topic partition was first read, where the next record is, and which topics these are."""

    start: Offsets
    end: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """A topic that was deleted and made anew has the same name, but another id."""
    stop: Offsets | None = None
    """Where reading ends for good; None: never. Topic partitions that are not named are not read at all."""

    @property
    def started(self) -> bool:
        """Whether a first start was decided."""
        return self != UNSTARTED

    @property
    def finished(self) -> bool:
        """Whether everything up to the stop was read, so that nothing will ever come."""
        stop = self.stop
        return stop is not None and all(offset >= stop[partition] for partition, offset in self.end.items())

    def to_json(self) -> dict[str, Any]:
        """What Spark writes into its log."""
        value = {
            "version": VERSION,
            "start": nested(self.start),
            "end": nested(self.end),
            "topicIds": dict(sorted(self.topic_ids.items())),
        }
        return value if self.stop is None else {**value, "stop": nested(self.stop)}


UNSTARTED = Progress({}, {})


def progress_from_json(value: Mapping[str, Any]) -> Progress:
    """Read what `to_json` gave, maybe long ago and by another version of this package, or by Spark's own source."""
    version = value.get("version")
    if version is None or isinstance(version, Mapping):  # A topic may have any name, also this one.
        return Progress({}, flat(value, "the offsets in the checkpoint"))
    if version != VERSION:
        raise UsageError(
            f"the checkpoint holds source offsets of version {version!r}; this sparkonce knows version {VERSION}. "
            "Use the sparkonce that wrote it, or one that is newer"
        )
    return Progress(
        flat(value.get("start"), "the start in the checkpoint"),
        flat(value.get("end"), "the end in the checkpoint"),
        {str(topic): str(topic_id) for topic, topic_id in value.get("topicIds", {}).items()},
        flat(value["stop"], "the stop in the checkpoint") if "stop" in value else None,
    )


def begin_of(before: Progress, topic_partition: TopicPartition, topic_ids: Mapping[str, str]) -> int | None:
    """Where reading of a topic partition goes on; None if it is new, or belongs to a topic that was made anew."""
    known_id = before.topic_ids.get(topic_partition.topic)
    if known_id is not None and known_id != topic_ids.get(topic_partition.topic, known_id):
        return None
    return before.end.get(topic_partition)


def begins(before: Progress, after: Progress) -> dict[TopicPartition, int]:
    """Where a micro-batch begins; a topic partition that is new in the later progress begins at its first start."""
    found: dict[TopicPartition, int] = {}
    for topic_partition in sorted(after.end):
        begin = begin_of(before, topic_partition, after.topic_ids)
        found[topic_partition] = _first_start(after, topic_partition) if begin is None else begin
    return found


def ranges_between(before: Progress, after: Progress) -> tuple[OffsetRange, ...]:
    """What lies between two progresses."""
    ranges = (OffsetRange(tp, begin, after.end[tp]) for tp, begin in begins(before, after).items())
    return tuple(piece for piece in ranges if piece.offsets > 0)


def _first_start(progress: Progress, topic_partition: TopicPartition) -> int:
    if topic_partition not in progress.start:
        raise UsageError(
            f"the checkpoint's last micro-batch was planned by Spark's built-in source, is not finished, and does not "
            f"say where {topic_partition} begins. Let the query finish it with format('kafka') once, then change over"
        )
    return progress.start[topic_partition]
