"""Shows where a query begins next, and moves it: looks, plans with `offset_changes`, and acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkonce.errors import SparkonceError, UsageError
from sparkonce.fetch.checkpoint import Checkpoint, local_folder, read_checkpoint
from sparkonce.model import TopicPartition
from sparkonce.ops.aborting import leave_name
from sparkonce.ops.lag import Standing, look
from sparkonce.ops.life import claim_of, known_transaction, signs_of_life
from sparkonce.ops.offset_changes import CheckpointChange, Move, Wish, checkpoint_change, moves_of, resolved
from sparkonce.ops.offset_files import KEPT, apply_change
from sparkonce.ops.query import Query
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, GroupOffset, commit_offsets, committed_offsets, init_producer

SET_BY_HAND = "none (sparkonce offsets --set)"
"""What the owner's group says instead of a query, so that a driver that was fenced can tell why."""
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Position:
    """One topic partition: where the next start begins, and what there is."""

    topic_partition: TopicPartition
    next_start: int | None
    groups: Mapping[str, int]
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Positions:
    """A whole query."""

    partitions: tuple[Position, ...]
    begins: str
    """Where the next start begins, in words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is possible, as it is shown before it is made."""

    place: str
    """checkpoint, or the name of a group"""
    offsets: Mapping[TopicPartition, int]
    moves: tuple[Move, ...]
    steps: tuple[str, ...]
    change: CheckpointChange | None = None


# Looking.


def positions(query: Query) -> Positions:
    """Reads the checkpoint and asks the cluster."""
    checkpoint, problem = _readable_checkpoint(query)
    with Client(query.source.connection) as client:
        standing = look(client, query)
    start = checkpoint.next_start() if checkpoint is not None else {}
    rows = tuple(
        Position(
            tp,
            start.get(tp),
            {group: offsets[tp] for group, offsets in standing.groups.items() if tp in offsets},
            standing.earliest[tp],
            standing.latest[tp],
        )
        for tp in standing.found.partitions
    )
    return Positions(rows, problem or begins_text(query, checkpoint))


def _readable_checkpoint(query: Query) -> tuple[Checkpoint | None, str | None]:
    try:
        return read_checkpoint(query.checkpoint), None
    except SparkonceError as error:
        return None, str(error)


def begins_text(query: Query, checkpoint: Checkpoint | None) -> str:
    """Pure: the next start in words."""
    if checkpoint is None or checkpoint.planned is None:
        group = query.source.start_group
        place = f"the offsets of group {group}" if group else "the `start` of the pipeline file"
        return f"The checkpoint has no micro-batch yet; the first start begins at {place}."
    if checkpoint.committed is None:
        return f"Batch {checkpoint.planned.batch_id}, the first one, is planned and not committed; it runs first."
    text = f"The next start begins where batch {checkpoint.committed.batch_id} ended."
    if checkpoint.unfinished is not None:
        text = (
            f"Batch {checkpoint.unfinished.batch_id} is planned and not committed; the next start runs it first, from "
            f"where batch {checkpoint.committed.batch_id} ended."
        )
    return text


# Planning.


def plan(query: Query, wishes: Sequence[Wish], place: str | None) -> Plan:
    """What would be done; UsageError with what to do instead if it is not possible."""
    with Client(query.source.connection) as client:
        standing = look(client, query)
    wanted = resolved(wishes, standing)
    chosen = place or _natural_place(query)
    if chosen == "group":
        return _group_plan(query, wanted, standing)
    return _checkpoint_plan(query, wanted, standing)


def _natural_place(query: Query) -> str:
    """Where the next start looks."""
    is_new = read_checkpoint(query.checkpoint).is_new
    return "group" if is_new and query.source.start_group is not None else "checkpoint"


def _group_plan(query: Query, wanted: Mapping[TopicPartition, int], standing: Standing) -> Plan:
    if not query.groups:
        raise UsageError("the pipeline has no consumer group: neither offsets_group, nor start = { committed = … }")
    group = query.source.start_group or query.groups[0]
    moves = moves_of(wanted, standing.groups.get(group, {}))
    step = f"commit {len(moves)} offset(s) for group {group}"
    if group != query.source.start_group:
        step += "; this is for monitors only, the query itself begins where its checkpoint says"
    return Plan(group, wanted, moves, (step,))


def _checkpoint_plan(query: Query, wanted: Mapping[TopicPartition, int], standing: Standing) -> Plan:
    change = _change(query, wanted, standing.found.topic_ids)
    steps = []
    if query.transactional_id is not None:
        steps.append(f"take transactional id {query.transactional_id} over: a driver that still runs stops, fenced")
    if change.drop is not None:
        steps.append(
            f"remove batch {change.drop.batch_id} from the offset log: it is not in the output and never will be"
        )
    steps.append(f"write the end of batch {change.entry.batch_id} anew; what was there is kept in {KEPT}")
    return Plan("checkpoint", wanted, change.moves, tuple(steps), change)


def _change(query: Query, wanted: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> CheckpointChange:
    checkpoint = read_checkpoint(query.checkpoint)
    marker = None
    if query.sink is not None and query.transactional_id is not None:
        with Client(query.sink.connection) as client:
            marker = claim_of(known_transaction(client, query.transactional_id)).marker
    return checkpoint_change(checkpoint, wanted, topic_ids, marker, decided_by_kafka=query.transactional_id is not None)


def require_stopped(query: Query, *, owner_gone: bool) -> None:
    """UsageError with every sign that the query runs."""
    try:
        folder = local_folder(query.checkpoint)
    except UsageError:
        folder = None
    found = signs_of_life(query, folder, owner_gone=owner_gone)
    if found:
        raise UsageError(f"the query seems to run; stop it first. {'. '.join(found)}")


# Acting.


def carry_out(query: Query, made: Plan) -> str:
    """Does what the plan says; gives what happened, in words."""
    if made.change is None:
        with Client(_connection_of(query, made.place)) as client:
            commit_offsets(client, made.place, {tp: GroupOffset(offset) for tp, offset in made.offsets.items()})
            now = committed_offsets(client, made.place, list(made.offsets))
        wrong = [str(tp) for tp, offset in made.offsets.items() if tp not in now or now[tp].offset != offset]
        if wrong:
            raise UsageError(f"group {made.place} was changed by others meanwhile: {', '.join(wrong)}")
        return f"Group {made.place} has the new offsets."
    _fence(query)
    # The marker is final only now: a driver may have committed since the plan was made.
    with Client(query.source.connection) as client:
        topic_ids = look(client, query).found.topic_ids
    if _change(query, made.offsets, topic_ids) != made.change:
        raise UsageError("the query has gone on since; nothing was changed. Stop it, and try again")
    kept = apply_change(local_folder(query.checkpoint), made.change)
    return f"The next start begins at the new offsets. The old entries are in {kept}."


def _connection_of(query: Query, group: str) -> ConnectionOptions:
    if query.sink is not None and group == query.sink.offsets_group and group != query.source.start_group:
        return query.sink.connection
    return query.source.connection


def _fence(query: Query) -> None:
    if query.sink is None or query.transactional_id is None:
        return
    with Client(query.sink.connection) as client:
        known = known_transaction(client, query.transactional_id)
        if known is not None:
            leave_name(client, known, SET_BY_HAND)
        timeout_ms = known.description.timeout_ms if known is not None else _TIMEOUT_MS
        init_producer(client, query.transactional_id, timeout_ms)
