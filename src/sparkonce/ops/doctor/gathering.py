"""Asks clusters, stores and this machine. Every question may fail by itself; its reason becomes a fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from sparkonce.commit import query_digest
from sparkonce.errors import SparkonceError
from sparkonce.fetch import Earliest, Latest
from sparkonce.fetch.checkpoint import Checkpoint, read_checkpoint
from sparkonce.fetch.lookup import find_partitions, offsets_at
from sparkonce.ops.doctor.cluster_gathering import cluster_facts
from sparkonce.ops.doctor.facts import ClusterFacts, Facts, GroupFacts, IdFacts, SourcePositions, StoreFacts
from sparkonce.ops.doctor.machine import machine_facts
from sparkonce.ops.life import known_transaction
from sparkonce.ops.owners import lives_here
from sparkonce.ops.query import Query, StoreTarget
from sparkonce.ops.transactions import now_ms
from sparkonce.options import ConnectionOptions
from sparkonce.transaction import marker_group
from sparkonce.transaction.marker import owner_group
from sparkonce.wire import Client, Deadline
from sparkonce.wire.diagnosis import group_operations, list_groups, may_write_transactional_id

QUESTION_MS = 15_000
"""How long one question may take; a healthy cluster needs milliseconds."""

T = TypeVar("T")


def answered(ask: Callable[[], T]) -> tuple[T | None, str | None]:
    """The answer, or why there is none."""
    try:
        return ask(), None
    except SparkonceError as error:
        return None, str(error)
    except Exception as error:  # whatever it is, the other questions must have their turn
        return None, f"{type(error).__name__}: {error}"


def impatient(options: ConnectionOptions) -> ConnectionOptions:
    """The same cluster, for someone who is waiting at a terminal."""
    return replace(
        options,
        request_timeout_ms=min(options.request_timeout_ms, QUESTION_MS),
        deadline_ms=min(options.deadline_ms, QUESTION_MS),
        connect_timeout_ms=min(options.connect_timeout_ms, 5_000),
    )


def gather(query: Query, clock: Callable[[], int] = now_ms) -> Facts:
    """All that the checks look at."""
    checkpoint, checkpoint_error = answered(lambda: read_checkpoint(query.checkpoint))
    source, sink = _clusters(query, clock)
    return Facts(
        query=query,
        now_ms=clock(),
        source=source,
        sink=sink,
        groups=_groups(query, source, sink),
        transactional_id=_id(query, sink),
        checkpoint=checkpoint,
        checkpoint_error=checkpoint_error,
        positions=_positions(query, source, checkpoint),
        stores=tuple(_store(store, query, checkpoint) for store in query.stores),
        machine=machine_facts(),
    )


def _clusters(query: Query, clock: Callable[[], int]) -> tuple[ClusterFacts, ClusterFacts | None]:
    roles: dict[str, str] = {}
    if query.source.dead_letter_topic is not None:
        roles[query.source.dead_letter_topic] = "dead letters"
    same = query.sink is not None and query.sink.connection == query.source.connection
    sink_roles = {query.sink.topic: "sink"} if query.sink is not None and query.sink.topic is not None else {}
    subscription = query.source.subscription
    options = impatient(query.source.connection)
    source = cluster_facts(options, subscription, roles | sink_roles if same else roles, clock)
    if query.sink is None or same:
        return source, source if same else None
    return source, cluster_facts(impatient(query.sink.connection), None, sink_roles, clock)


def _groups(query: Query, source: ClusterFacts, sink: ClusterFacts | None) -> tuple[GroupFacts, ...]:
    at_source = {g: "the source's" for g in (query.source.start_group, query.source.shown_group) if g is not None}
    found = _groups_of(query.source.connection, at_source, at_sink=False) if source.usable else ()
    if query.sink is None or sink is None or not sink.usable:
        return found
    at_sink: dict[str, str] = {}
    if query.transactional_id is not None:
        at_sink[marker_group(query.transactional_id)] = "the marker's"
        at_sink[owner_group(query.transactional_id)] = "the owner's"
    if query.sink.offsets_group is not None:
        at_sink[query.sink.offsets_group] = "offsets_group"
    return found + _groups_of(query.sink.connection, at_sink, at_sink=True)


def _groups_of(options: ConnectionOptions, names: Mapping[str, str], *, at_sink: bool) -> tuple[GroupFacts, ...]:
    if not names:
        return ()
    with Client(impatient(options)) as client:
        listed, _ = answered(lambda: list_groups(client))
        busy = {name for name, group in (listed or {}).items() if group.has_members}
        found = [_group(client, name, what, busy) for name, what in names.items()]
        return tuple(replace(group, at_sink=at_sink) for group in found)


def _group(client: Client, name: str, what: str, busy: set[str]) -> GroupFacts:
    allowed, error = answered(lambda: group_operations(client, name, Deadline.after_ms(QUESTION_MS)))
    return GroupFacts(name=name, what=what, allowed=allowed, error=error, has_members=name in busy)


def _id(query: Query, sink: ClusterFacts | None) -> IdFacts | None:
    name = query.transactional_id
    if name is None or query.sink is None or sink is None or not sink.usable:
        return None
    with Client(impatient(query.sink.connection)) as client:
        known, error = answered(lambda: known_transaction(client, name))
        may_write, write_error = answered(lambda: may_write_transactional_id(client, name))
    owner = known.claim.owner if known is not None else None
    return IdFacts(
        name=name,
        known=known,
        error=error,
        may_write=may_write,
        write_error=write_error,
        owner_lives_here=lives_here(owner),
    )


def _positions(query: Query, source: ClusterFacts, checkpoint: Checkpoint | None) -> SourcePositions:
    if not source.usable or checkpoint is None or checkpoint.committed is None:
        return SourcePositions()
    progress, _ = answered(checkpoint.committed.progress)
    if progress is None:
        return SourcePositions()
    with Client(impatient(query.source.connection)) as client:
        until = client.deadline()
        found, error = answered(lambda: find_partitions(client, query.source.subscription, until))
        if found is None or error is not None:
            return SourcePositions()
        read = [tp for tp in found.partitions if tp in progress.end]
        earliest, _ = answered(lambda: offsets_at(client, Earliest(), read, query.source.isolation, until))
        latest, _ = answered(lambda: offsets_at(client, Latest(), read, query.source.isolation, until))
    return SourcePositions(
        next_start={tp: progress.end[tp] for tp in read},
        earliest=earliest or {},
        latest=latest or {},
        topic_ids=found.topic_ids,
        known_ids=progress.topic_ids,
    )


def _store(store: StoreTarget, query: Query, checkpoint: Checkpoint | None) -> StoreFacts:
    participant = store.participant
    if participant is None:
        return StoreFacts(name=store.name, prepares=store.prepares, error=store.problem)
    if store.prepares:
        _, error = answered(lambda: participant.preflight(query.branches))
        if error is not None:
            return StoreFacts(name=store.name, prepares=True, error=error)
    query_id = checkpoint.query_id if checkpoint is not None else None
    found, error = answered(lambda: participant.in_doubt(query_digest(query_id or "")))
    names = tuple(handle.branch.name for handle in found or ())
    return StoreFacts(name=store.name, prepares=store.prepares, error=error, leftovers=names)
