"""How many bytes an offset of each topic partition has in the log, from a short look at its next record batches.

An estimate: the end of a micro-batch is decided once and logged by Spark, so it need not be exact, only cheap. A look
that fails leaves the estimate as it was; whoever reads the records says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.deadline import Deadline
from sparkonce.errors import RetriableError, SparkonceError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.model import TopicPartition
from sparkonce.records import BatchHeaders, read_headers
from sparkonce.wire import Client, Fetched, FetchFrom, FetchSettings, Isolation, fetch

_LOOK_BYTES = 64 * 1024
_ALL_LOOKS_BYTES = 4 * 1024 * 1024
_ALONE_MAX = 8
"""So many topic partitions at once are asked alone, because their next record batch is larger than a look."""
_LOOK_MS = 2_000


class ByteRates:
    """The bytes per offset of one query's topic partitions, as they were when last looked at."""

    def __init__(self, client: Client, isolation: Isolation) -> None:
        self._client = client
        self._settings = FetchSettings(isolation=isolation, max_bytes=_ALL_LOOKS_BYTES)
        self._rates: dict[TopicPartition, float] = {}
        """The one that was looked at longest ago comes first."""

    def look(self, begin: Offsets, reachable: Offsets, deadline: Deadline) -> None:
        """Look at the next record batches of all that have any, those not seen for the longest time first."""
        seen = {partition: order for order, partition in enumerate(self._rates)}
        pending = [partition for partition, end in reachable.items() if end > begin[partition]]
        pending.sort(key=lambda partition: seen.get(partition, -1))
        until = deadline.sooner_ms(_LOOK_MS)
        silent = self._note(pending, begin, until)
        for partition in silent[:_ALONE_MAX]:
            self._note([partition], begin, until)

    def estimate(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
        """Bytes per offset; the mean of the others for those that gave no answer, nothing if none did."""
        known = [rate for partition in partitions if (rate := self._rates.get(partition)) is not None]
        if not known:
            return {}
        mean = sum(known) / len(known)
        return {partition: self._rates.get(partition, mean) for partition in partitions}

    def _note(self, partitions: Sequence[TopicPartition], begin: Offsets, deadline: Deadline) -> list[TopicPartition]:
        """Those that gave nothing: a record batch larger than the look comes only to the first that is asked."""
        silent = []
        for partition, fetched in self._fetched(partitions, begin, deadline).items():
            rate = _rate(partition, fetched)
            if rate is None:
                silent.append(partition)
            else:
                self._rates.pop(partition, None)
                self._rates[partition] = rate
        return silent

    def _fetched(
        self, partitions: Sequence[TopicPartition], begin: Offsets, deadline: Deadline
    ) -> dict[TopicPartition, Fetched | None]:
        wanted = {partition: FetchFrom(begin[partition], _LOOK_BYTES) for partition in partitions}
        try:
            return {**fetch(self._client, wanted, self._settings, deadline)} if wanted else {}
        except RetriableError:
            return {}
        except SparkonceError:  # Of one of them, maybe: its records are gone. The others may answer alone.
            return dict.fromkeys(partitions)


def _rate(partition: TopicPartition, fetched: Fetched | None) -> float | None:
    try:
        return None if fetched is None else bytes_per_offset(read_headers(fetched.records, partition))
    except SparkonceError:
        return None


def bytes_per_offset(headers: BatchHeaders) -> float | None:
    """Of whole record batches; offsets that compaction took count, because limits count them too."""
    if len(headers) == 0:
        return None
    return headers.walked_bytes / (int(headers.last_offset[-1]) + 1 - int(headers.base_offset[0]))
