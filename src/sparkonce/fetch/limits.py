"""How much of what there is a micro-batch takes. Pure."""

from __future__ import annotations

import math

from sparkonce.fetch.offset_maps import Offsets
from sparkonce.model import TopicPartition


def limit_offsets(begin: Offsets, latest: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """End offsets so that about `max_offsets` are read: each topic partition gives in proportion to what it has.

    As in Spark's built-in source, one that has anything gives at least one, so that a small topic partition is not
    held up by a large one; with more topic partitions than `max_offsets` the limit is exceeded by that.
    """
    sizes = {topic_partition: max(0, end - begin[topic_partition]) for topic_partition, end in latest.items()}
    total = sum(sizes.values())
    if total <= max_offsets:
        return {topic_partition: begin[topic_partition] + size for topic_partition, size in sizes.items()}
    return {
        topic_partition: begin[topic_partition] + min(size, _share(size, total, max_offsets))
        for topic_partition, size in sizes.items()
    }


def _share(size: int, total: int, max_offsets: int) -> int:
    share = size / total * max_offsets
    return math.ceil(share) if share < 1 else math.floor(share)


def available_offsets(begin: Offsets, latest: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(0, end - begin[topic_partition]) for topic_partition, end in latest.items())
