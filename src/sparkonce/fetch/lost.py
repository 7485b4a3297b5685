"""Records that were to be read and are gone: which ones exactly, and what to say about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.ranges import OffsetRange
from sparkonce.model import TopicPartition

_NAMED_RANGES_MAX = 20


def lost_before(ranges: Sequence[OffsetRange], earliest: Offsets) -> tuple[OffsetRange, ...]:
    """What of the ranges lies before the earliest offset that its topic partition still has."""
    return tuple(
        OffsetRange(piece.topic_partition, piece.start, min(piece.end, earliest[piece.topic_partition]))
        for piece in ranges
        if piece.start < earliest[piece.topic_partition]
    )


def without_lost(ranges: Sequence[OffsetRange], earliest: Offsets) -> tuple[OffsetRange, ...]:
    """What of the ranges is still there."""
    kept = (
        OffsetRange(piece.topic_partition, max(piece.start, earliest[piece.topic_partition]), piece.end)
        for piece in ranges
    )
    return tuple(piece for piece in kept if piece.offsets > 0)


def lost_behind(ranges: Sequence[OffsetRange], ends: Offsets) -> tuple[OffsetRange, ...]:
    """What of the ranges lies behind the end of its log; `ends` names only the logs that are too short."""
    return tuple(
        OffsetRange(piece.topic_partition, max(piece.start, ends[piece.topic_partition]), piece.end)
        for piece in ranges
        if piece.topic_partition in ends and piece.end > ends[piece.topic_partition]
    )


def before_ends(ranges: Sequence[OffsetRange], ends: Offsets) -> tuple[OffsetRange, ...]:
    """What of the ranges lies before the end of its log."""
    kept = (
        OffsetRange(piece.topic_partition, piece.start, min(piece.end, ends.get(piece.topic_partition, piece.end)))
        for piece in ranges
    )
    return tuple(piece for piece in kept if piece.offsets > 0)


def ends_before(reached: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Where logs end that do not have what was there before."""
    return {tp: latest[tp] for tp, offset in reached.items() if tp in latest and latest[tp] < offset}


def data_loss(lost: Sequence[OffsetRange], reason: str) -> UsageError:
    """The error that names all of what is lost."""
    return UsageError(
        f"records were lost: {reason}. Not read and gone: {_named(lost)}. If the query shall go on without them, set "
        "failOnDataLoss to false; keep records longer than the query may stand still (retention.ms)"
    )


def cut_off(lost: Sequence[OffsetRange]) -> UsageError:
    """The error for logs that have become shorter."""
    return UsageError(
        "records were lost: logs end before what was read or planned, because of an unclean leader election or a topic "
        f"made anew. Gone: {_named(lost)}. New records will get the same offsets. If the query shall go on at the ends "
        "of the logs, set failOnDataLoss to false; let unclean.leader.election.enable be false to keep what is written"
    )


def _named(lost: Sequence[OffsetRange]) -> str:
    named = ", ".join(str(piece) for piece in lost[:_NAMED_RANGES_MAX])
    more = f" and {len(lost) - _NAMED_RANGES_MAX} more ranges" if len(lost) > _NAMED_RANGES_MAX else ""
    return f"{named}{more} ({sum(piece.offsets for piece in lost)} offsets)"
