"""Fetches one range of offsets, ahead of whoever decodes it. Raw record batches come out, in order and once.

The next request leaves as soon as the headers of an answer say where it must begin, before any of that answer's
records are decoded; answers queue up to a bound of bytes. Leaders that move, brokers that fall silent: retried until
no progress was made for the deadline. Knows no Arrow and no Spark.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sparkonce.deadline import Deadline
from sparkonce.errors import CorruptRecordsError, Fault, RetriableError, SparkonceError
from sparkonce.fetch.committed import Mask, overlapping_batches, visible_batches
from sparkonce.fetch.lost import cut_off, data_loss
from sparkonce.fetch.ranges import OffsetRange
from sparkonce.model import TopicPartition
from sparkonce.records import BatchHeaders, read_headers
from sparkonce.wire import (
    Client,
    Fetched,
    FetchFrom,
    FetchSettings,
    Handle,
    Isolation,
    OffsetAt,
    fetch,
    list_offsets,
    send_fetch,
)

OFFSET_OUT_OF_RANGE = 1
_GLANCE_SECONDS = 1e-6
"""Long enough to move what lies ready in the sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How a range is fetched."""

    isolation: Isolation = Isolation.READ_COMMITTED
    fetch_bytes: int = 4 * 1024 * 1024
    """Asked for at once; a single record batch that is larger still comes."""
    ahead_bytes: int = 16 * 1024 * 1024
    """No request leaves while this many bytes are waiting to be decoded."""
    max_wait_ms: int = 500
    min_bytes: int = 1
    deadline_ms: int = 60_000
    """How long to go on without any progress."""
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some record batches of the range, and which of them to decode."""

    records: memoryview
    headers: BatchHeaders
    selected: Mask


class FetchAhead:
    """The record batches of one range; the client must be used by nobody else meanwhile."""

    def __init__(self, client: Client, wanted: OffsetRange, settings: ReadSettings) -> None:
        self._client = client
        self._wanted = wanted
        self._settings = settings
        self._fetch_settings = FetchSettings(
            isolation=settings.isolation,
            max_bytes=settings.fetch_bytes,
            min_bytes=settings.min_bytes,
            max_wait_ms=settings.max_wait_ms,
        )
        self._position = wanted.start
        self._ready: deque[Piece] = deque()
        self._ready_bytes = 0
        self._log_end = wanted.end
        """As the last answer told it."""
        self._request: Handle[Fetched] | None = None
        self._deadline = Deadline.after_ms(settings.deadline_ms)

    def take(self) -> Piece | None:
        """The next record batches; waits for them. None when the range has been read."""
        self._renew_deadline()
        while self._nothing_came:
            try:
                self._accept(self._answer())
            except RetriableError as error:
                raise self._out_of_time(str(error), error.fault) from error
            # Another empty answer would take longer than what is left.
            if self._nothing_came and self._deadline.remaining_ms <= 2 * self._settings.max_wait_ms:
                self._give_up()
        if not self._ready:
            return None
        piece = self._ready.popleft()
        self._ready_bytes -= len(piece.records)
        self._request_more()
        return piece

    def glance(self) -> None:
        """Take in an answer if one has arrived, and ask for more; never waits. For the pauses of decoding."""
        if self._request is None:
            return
        self._client.connections.pause(_GLANCE_SECONDS)
        if not self._request.done:
            return
        outcome = self._request.result(self._deadline)[self._wanted.topic_partition]
        self._request = None
        if isinstance(outcome, Fetched):  # Else `take` asks again, and may wait while it does.
            self._accept(outcome)
            self._request_more()

    @property
    def _finished(self) -> bool:
        return self._position >= self._wanted.end

    @property
    def _nothing_came(self) -> bool:
        return not self._ready and not self._finished

    def _renew_deadline(self) -> None:
        self._deadline = Deadline.after_ms(self._settings.deadline_ms)

    def _out_of_time(self, reason: str, fault: Fault | None = None) -> RetriableError:
        return RetriableError(
            f"{self._wanted}: nothing came from offset {self._position} on for {self._settings.deadline_ms} ms, "
            f"although the log reached offset {self._wanted.end} before: {reason}",
            fault=fault,
        )

    def _request_more(self) -> None:
        if self._request is not None or self._finished or self._ready_bytes >= self._settings.ahead_bytes:
            return
        partition = self._wanted.topic_partition
        try:
            leader = self._client.leaders([partition], self._deadline)[partition]
            self._request = send_fetch(self._client, leader, self._from_here(), self._fetch_settings, self._deadline)
        except RetriableError:
            self._request = None  # The next `take` asks with retries.

    def _from_here(self) -> dict[TopicPartition, FetchFrom]:
        return {self._wanted.topic_partition: FetchFrom(self._position, self._settings.fetch_bytes)}

    def _answer(self) -> Fetched | None:
        """What the request under way gave; if it failed or there is none, what asking with retries gives."""
        partition = self._wanted.topic_partition
        request, self._request = self._request, None
        if request is not None:
            outcome = request.result(self._deadline)[partition]
            if isinstance(outcome, Fetched):
                return outcome
        try:
            return fetch(self._client, self._from_here(), self._fetch_settings, self._deadline)[partition]
        except SparkonceError as error:
            if error.fault is None or error.fault.code != OFFSET_OUT_OF_RANGE:
                raise
            self._skip_lost(error)
            return None

    def _skip_lost(self, cause: SparkonceError) -> None:
        """The broker does not have the offset: retention took it, or the log was cut off before it."""
        partition = self._wanted.topic_partition
        earliest = list_offsets(self._client, {partition: OffsetAt.EARLIEST}, deadline=self._deadline)[partition].offset
        if earliest <= self._position:
            self._skip_cut_off(cause)
            return
        goes_on_at = min(earliest, self._wanted.end)
        if self._settings.fail_on_data_loss:
            lost = OffsetRange(partition, self._position, goes_on_at)
            raise data_loss([lost], f"{partition} now begins at offset {earliest}") from cause
        self._position = goes_on_at

    def _skip_cut_off(self, cause: SparkonceError | None = None) -> None:
        """The log ends before the range does."""
        if self._settings.fail_on_data_loss:
            raise cut_off([OffsetRange(self._wanted.topic_partition, self._position, self._wanted.end)]) from cause
        self._position = self._wanted.end

    def _give_up(self) -> None:
        """Nothing came for the whole deadline, only empty answers."""
        if self._log_end >= self._wanted.end:
            raise self._out_of_time("its answers were empty")
        self._skip_cut_off()

    def _accept(self, fetched: Fetched | None) -> None:
        """Queue what may be seen, and move on by the last offset of the last batch."""
        if fetched is None:
            return
        wanted = self._wanted
        self._log_end = fetched.high_watermark
        headers = read_headers(fetched.records, wanted.topic_partition)
        if len(headers) == 0:
            # Compaction can remove everything up to the end of a log: it reaches there, and there is nothing.
            if len(fetched.records) == 0 and self._readable_end(fetched) >= wanted.end:
                self._position = wanted.end
            return
        behind = int(headers.last_offset[-1]) + 1
        if behind <= self._position:
            raise CorruptRecordsError(f"{wanted}: asked for offset {self._position}, got records up to {behind - 1}")
        selected = visible_batches(headers, fetched.aborted) & overlapping_batches(headers, self._position, wanted.end)
        if selected.any():
            self._ready.append(Piece(fetched.records, headers, selected))
            self._ready_bytes += len(fetched.records)
        self._position = behind
        self._renew_deadline()

    def _readable_end(self, fetched: Fetched) -> int:
        committed_only = self._settings.isolation is Isolation.READ_COMMITTED
        return fetched.last_stable_offset if committed_only else fetched.high_watermark
