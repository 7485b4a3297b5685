"""Plans a bounded read: from one position to another, decided once."""

from __future__ import annotations

from sparkonce.fetch.lookup import find_partitions, offsets_at
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.fetch.planning import require_before_stop, require_reached
from sparkonce.fetch.positions import Earliest, ExactOffsets, Latest
from sparkonce.fetch.ranges import OffsetRange, split
from sparkonce.fetch.settings import SourceSettings
from sparkonce.fetch.stream import still_there
from sparkonce.wire import Client


def bounded_ranges(client: Client, settings: SourceSettings) -> tuple[OffsetRange, ...]:
    """What each Spark task of a bounded read reads."""
    deadline, isolation = client.deadline(), settings.read.isolation
    partitions = find_partitions(client, settings.subscription, deadline).partitions
    start = offsets_at(client, settings.starting, partitions, isolation, deadline)
    latest = offsets_at(client, Latest(), partitions, isolation, deadline)
    end = latest if settings.ending is None else offsets_at(client, settings.ending, partitions, isolation, deadline)
    if isinstance(settings.ending, ExactOffsets):
        require_reached(end, latest)
    earliest = offsets_at(client, Earliest(), partitions, isolation, deadline)
    wanted = ranges_from_to(start, end)
    return split(
        still_there(wanted, earliest, fail_on_data_loss=settings.read.fail_on_data_loss),
        min_partitions=settings.min_partitions,
        max_records=settings.max_records_per_partition,
    )


def ranges_from_to(start: Offsets, end: Offsets) -> tuple[OffsetRange, ...]:
    """The ranges of all topic partitions; a start behind its end is an error."""
    require_before_stop(start, end)
    return tuple(OffsetRange(partition, offset, end[partition]) for partition, offset in sorted(start.items()))
