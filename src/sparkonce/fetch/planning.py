"""The next progress of a stream, from what was read and what there is. Pure: `sparkonce.fetch.stream` asks Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.progress import Progress, begin_of
from sparkonce.fetch.subscription import Subscribed
from sparkonce.model import TopicPartition


def new_partitions(before: Progress, found: Subscribed) -> list[TopicPartition]:
    """Those that are not known yet, or belong to a topic that was deleted and made anew."""
    return [partition for partition in found.partitions if begin_of(before, partition, found.topic_ids) is None]


def next_progress(
    before: Progress,
    found: Subscribed,
    first: Offsets,
    latest: Offsets,
    stop: Offsets | None = None,
) -> Progress:
    """Reads on up to `latest`; `first` says where new topic partitions begin."""
    begin: dict[TopicPartition, int] = {}
    start: dict[TopicPartition, int] = {}
    for partition in found.partitions:
        known = begin_of(before, partition, found.topic_ids)
        begin[partition] = first[partition] if known is None else known
        start[partition] = first[partition] if known is None else before.start.get(partition, known)
    # A new leader may tell a lower end for a moment: never go back.
    end = {partition: max(begin[partition], latest[partition]) for partition in begin}
    return Progress(start, end, found.topic_ids, stop)


def until_stop(latest: Offsets, stop: Offsets | None) -> Offsets:
    """What there is to read before the stop."""
    if stop is None:
        return latest
    return {partition: min(end, stop[partition]) for partition, end in latest.items() if partition in stop}


def require_before_stop(first: Offsets, stop: Offsets | None) -> None:
    """Raise if a start lies behind its stop."""
    for partition, offset in sorted(first.items()):
        if stop is not None and offset > stop[partition]:
            raise UsageError(f"{partition}: the start, offset {offset}, lies behind the end, offset {stop[partition]}")


def require_reached(end: Offsets, latest: Offsets) -> None:
    """Raise if a bounded read would have to wait for records."""
    for partition, offset in sorted(end.items()):
        if offset > latest[partition]:
            raise UsageError(
                f"{partition} cannot be read up to offset {offset}: it ends at {latest[partition]} now. Choose an "
                "earlier end, or use a stream, which waits for its end"
            )


def only_stopping(found: Subscribed, stop: Offsets | None) -> Subscribed:
    """The topic partitions that have a stop; those that came later are none of this query's business."""
    if stop is None:
        return found
    return Subscribed(tuple(partition for partition in found.partitions if partition in stop), found.topic_ids)


def refuse_vanished(before: Progress, found: Subscribed) -> None:
    """Raise if topic partitions are gone, or if their topic is another one under the same name."""
    vanished = sorted(set(before.end) - set(found.partitions))
    if vanished:
        raise UsageError(
            f"records may be lost: {_names(vanished)} no longer exist, and were read up to offset "
            f"{before.end[vanished[0]]} (of {vanished[0]}). Set failOnDataLoss to false if the query shall go on"
        )
    renewed = sorted(
        topic for topic, topic_id in found.topic_ids.items() if before.topic_ids.get(topic, topic_id) != topic_id
    )
    if renewed:
        raise UsageError(
            f"records may be lost: {', '.join(renewed)} was deleted and made anew since the query read it, so that "
            "its offsets mean other records. Set failOnDataLoss to false to read the new topic from its beginning"
        )


def require_within(first: Offsets, earliest: Offsets, latest: Offsets) -> None:
    """Raise if a start lies outside of what its topic partition has."""
    for partition, offset in sorted(first.items()):
        if not earliest[partition] <= offset <= latest[partition]:
            raise UsageError(
                f"{partition} cannot be read from offset {offset}: it has {earliest[partition]} up to, and without, "
                f"{latest[partition]}. Set failOnDataLoss to false to read from the nearest offset"
            )


def moved_within(first: Offsets, earliest: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Starts moved to the nearest offset that there is."""
    return {tp: min(max(offset, earliest[tp]), latest[tp]) for tp, offset in first.items()}


def _names(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return ", ".join(str(partition) for partition in partitions[:10]) + more
