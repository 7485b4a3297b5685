"""How much of what there is a micro-batch takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from sparkonce.fetch.offset_maps import Offsets
from sparkonce.model import TopicPartition


def limit_offsets(begin: Offsets, latest: Offsets, fraction: Fraction) -> dict[TopicPartition, int]:
    """End offsets so that this fraction is read: each topic partition gives in proportion to what it has.

    As in Spark's built-in source, one that has anything gives at least one, so that a small topic partition is not
    held up by a large one; with more topic partitions than the limit allows offsets, it is exceeded by that.
    """
    sizes = {topic_partition: max(0, end - begin[topic_partition]) for topic_partition, end in latest.items()}
    return {topic_partition: begin[topic_partition] + _share(size, fraction) for topic_partition, size in sizes.items()}


def _share(size: int, fraction: Fraction) -> int:
    share = size * fraction
    return math.ceil(share) if share < 1 else math.floor(share)


def portion(total: int, limit: int | None) -> Fraction:
    """Which fraction of the total the limit allows."""
    return Fraction(1) if limit is None or total <= limit else Fraction(limit, total)


def available_offsets(begin: Offsets, latest: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(0, end - begin[topic_partition]) for topic_partition, end in latest.items())


def available_bytes(begin: Offsets, latest: Offsets, bytes_per_offset: Mapping[TopicPartition, float]) -> int:
    """About how many bytes there are to read."""
    sizes = ((partition, end - begin[partition]) for partition, end in latest.items())
    return round(sum(size * bytes_per_offset.get(partition, 0) for partition, size in sizes if size > 0))
