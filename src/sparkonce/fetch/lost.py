"""Records that were to be read and are gone: which ones exactly, and what to say about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.errors import UsageError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.ranges import OffsetRange

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


def data_loss(lost: Sequence[OffsetRange], reason: str) -> UsageError:
    """The error that names all of what is lost."""
    named = ", ".join(str(piece) for piece in lost[:_NAMED_RANGES_MAX])
    more = f" and {len(lost) - _NAMED_RANGES_MAX} more ranges" if len(lost) > _NAMED_RANGES_MAX else ""
    offsets = sum(piece.offsets for piece in lost)
    return UsageError(
        f"records were lost: {reason}. Not read and gone: {named}{more} ({offsets} offsets). If the query shall go on "
        "without them, set failOnDataLoss to false; keep records longer than the query may stand still (retention.ms)"
    )
