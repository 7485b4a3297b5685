"""Where a query begins next, and when that may be changed. Pure: values in, intents out.

Spark begins where the newest micro-batch in its offset log ended. If that micro-batch is not in its commit log, it runs
again first, with the same end. So the start can be changed by writing the end of micro-batch C, the newest committed
one, anew, under these conditions (C + 1 is the micro-batch that may be planned):

    nothing is committed yet          no log says where to begin: the pipeline file does
    C is the newest planned one       the entry C is written anew; its number stays, so the marker in Kafka, the state
                                      and Spark's commit log still fit. The marker is compared with C + 1 from now on
    C + 1 is planned, Kafka has it    refused: it must be noted in Spark's log first, by one start of the query
    C + 1 is planned, Kafka has C     after the id was taken over, C + 1 can never be committed: it is as if it had
                                      never been planned. Its entry is removed, then C is written anew. Branches that
                                      it left in databases are rolled back at the next start, as those of any lost
                                      run. Refused with state: files of C + 1 may be there, made from other records
    anything else                     refused: it cannot be known whether C + 1 is in the output
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import Checkpoint, LoggedBatch
from sparkonce.fetch.progress import Progress
from sparkonce.model import TopicPartition
from sparkonce.ops.lag import Standing
from sparkonce.transaction import Marker

RUN_ONCE = "Start the query once and let it finish (`sparkonce run FILE --once`), then try again"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asked for: an offset or a word, for one topic partition or for all of a topic."""

    topic: str
    partition: int | None
    place: int | str
    """An offset, earliest or latest."""


@dataclass(frozen=True, slots=True)
class Move:
    """One topic partition from an offset to another."""

    topic_partition: TopicPartition
    old: int | None
    new: int

    def __str__(self) -> str:
        was = "nothing" if self.old is None else f"{self.old:,}"
        effect = ""
        if self.old is not None and self.new < self.old:
            effect = f": {self.old - self.new:,} offsets are read again, and what they give is written a second time"
        elif self.old is not None and self.new > self.old:
            effect = f": {self.new - self.old:,} offsets are never read"
        return f"{self.topic_partition}  {was} → {self.new:,}{effect}"


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """What to do with the offset log."""

    entry: LoggedBatch
    """The newest committed one, as it is."""
    text: str
    """The entry as it will be."""
    drop: LoggedBatch | None
    """The planned micro-batch that is removed first."""
    moves: tuple[Move, ...]


def parse_wish(text: str) -> Wish:
    """TOPIC:PARTITION=OFFSET, or TOPIC=OFFSET for all partitions; the offset may be earliest or latest."""
    where, equals, place = text.rpartition("=")
    topic, colon, partition = where.strip().partition(":")
    place = place.strip().lower()
    good_place = place.isdecimal() or place in ("earliest", "latest")
    if not equals or not topic or not good_place or (colon and not partition.strip().isdecimal()):
        raise UsageError(f"{text!r} is not TOPIC:PARTITION=OFFSET; for example orders:0=1500, or orders=earliest")
    return Wish(topic, int(partition) if colon else None, int(place) if place.isdecimal() else place)


def resolved(wishes: Sequence[Wish], standing: Standing) -> dict[TopicPartition, int]:
    """The offsets that are asked for; UsageError for what the topics do not have."""
    found: dict[TopicPartition, int] = {}
    for wish in wishes:
        named = [
            tp for tp in standing.found.partitions if tp.topic == wish.topic and wish.partition in (None, tp.partition)
        ]
        if not named:
            what = wish.topic if wish.partition is None else f"{wish.topic}-{wish.partition}"
            known = ", ".join(sorted({tp.topic for tp in standing.found.partitions}))
            raise UsageError(f"the query does not read {what}; it reads {known or 'nothing'}")
        for tp in named:
            if tp in found:
                raise UsageError(f"{tp} is set twice")
            found[tp] = _offset(wish, standing.earliest[tp], standing.latest[tp], tp)
    return found


def _offset(wish: Wish, earliest: int, latest: int, tp: TopicPartition) -> int:
    if wish.place == "earliest":
        return earliest
    if wish.place == "latest":
        return latest
    offset = int(wish.place)
    if not earliest <= offset <= latest:
        raise UsageError(f"{tp} has the offsets {earliest:,} to {latest:,}; {offset:,} is outside of it")
    return offset


def moves_of(wanted: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> tuple[Move, ...]:
    """What would change."""
    return tuple(Move(tp, now.get(tp), new) for tp, new in sorted(wanted.items()) if now.get(tp) != new)


def checkpoint_change(
    checkpoint: Checkpoint,
    wanted: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    marker: Marker | None,
    *,
    decided_by_kafka: bool,
) -> CheckpointChange:
    """What to do, or a UsageError that says what to do instead. The table at the top is this function."""
    if checkpoint.committed is None:
        raise UsageError(_nothing_committed(checkpoint))
    drop = checkpoint.unfinished
    _require_same_life(checkpoint, marker)
    if drop is not None:
        _require_never_committed(checkpoint, drop, marker, decided_by_kafka=decided_by_kafka)
    progress = checkpoint.committed.progress()
    if progress is None or len(checkpoint.committed.sources) != 1:
        raise UsageError(
            "the checkpoint is not that of a query with one Kafka source; its offsets cannot be changed here"
        )
    _require_known(progress, wanted, topic_ids)
    return CheckpointChange(
        checkpoint.committed, rewritten(checkpoint.committed, wanted), drop, moves_of(wanted, progress.end)
    )


def _nothing_committed(checkpoint: Checkpoint) -> str:
    if checkpoint.is_new:
        return (
            "no micro-batch is planned yet: the pipeline file says where the query begins. Write it there, for example "
            'start = { offsets = { orders = { "0" = 1500 } } }'
        )
    return (
        f"the first micro-batch is planned and not committed, so no log has an offset that could be changed. "
        f"{RUN_ONCE}; or, if the output has nothing of it, move the checkpoint away and write the start into the "
        f"pipeline file"
    )


def _require_same_life(checkpoint: Checkpoint, marker: Marker | None) -> None:
    if marker is None or checkpoint.planned is None:
        return
    if marker.owner.query_id != checkpoint.query_id:
        raise UsageError(
            f"the transactional id was last used by query {marker.owner.query_id}, but the checkpoint is that of "
            f"{checkpoint.query_id}. `sparkonce doctor FILE` says more"
        )
    if marker.batch_id > checkpoint.planned.batch_id:
        raise UsageError(
            f"Kafka has batch {marker.batch_id}, but the checkpoint knows only batch {checkpoint.planned.batch_id}: it "
            f"is older than the output, a backup perhaps. Restore the newest one"
        )


def _require_never_committed(
    checkpoint: Checkpoint, planned: LoggedBatch, marker: Marker | None, *, decided_by_kafka: bool
) -> None:
    what = f"batch {planned.batch_id} is planned and not committed"
    if not decided_by_kafka:
        raise UsageError(
            f"{what}, and without an exactly-once Kafka sink nobody here knows what of it is in the output. {RUN_ONCE}"
        )
    if marker is None:
        raise UsageError(f"{what}, and Kafka has no marker that tells whether it is in the output. {RUN_ONCE}")
    if marker.batch_id == planned.batch_id:
        raise UsageError(f"batch {planned.batch_id} is in the output, but Spark has not noted it yet. {RUN_ONCE}")
    if checkpoint.stateful:
        raise UsageError(
            f"{what}, and the query keeps state, of which a part may have been written already. {RUN_ONCE}"
        )


def _require_known(progress: Progress, wanted: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> None:
    for tp in wanted:
        if tp not in progress.end:
            raise UsageError(
                f"{tp} is new to the query: it begins at its first record by itself, and cannot be set yet"
            )
        known = progress.topic_ids.get(tp.topic)
        if known is not None and known != topic_ids.get(tp.topic, known):
            raise UsageError(
                f"topic {tp.topic} was deleted and made anew since: the query begins at its first record by itself, or "
                f"stops if fail_on_data_loss is true"
            )


def rewritten(entry: LoggedBatch, wanted: Mapping[TopicPartition, int]) -> str:
    """The entry with other end offsets, and otherwise as it was, to the blanks: Spark compares offsets as text."""
    (source,) = entry.sources
    value: dict[str, Any] = json.loads(source)
    ends = value["end"] if isinstance(value.get("version"), int) else value
    for tp, offset in wanted.items():
        ends[tp.topic][str(tp.partition)] = offset
    head, found, tail = entry.text.rpartition(source)
    if not found:
        raise UsageError(f"entry {entry.batch_id} of Spark's offset log cannot be written anew")
    return head + _written_like(source, value) + tail


def _written_like(original: str, value: dict[str, Any]) -> str:
    spaced = json.dumps(json.loads(original)) == original
    return json.dumps(value) if spaced else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
