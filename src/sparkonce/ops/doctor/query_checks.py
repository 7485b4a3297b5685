"""Checks of the query itself: who runs it, whether checkpoint, marker, topics and stores fit together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.fetch.checkpoint import Checkpoint
from sparkonce.ops.doctor.facts import Facts, SourcePositions, StoreFacts
from sparkonce.ops.doctor.findings import Finding, ok, problem, unknown, warning
from sparkonce.ops.tables import count, duration, listed
from sparkonce.ops.transactions import KnownTransaction
from sparkonce.transaction import Marker

DEFAULT_MARKER_LIFE_MINUTES = "10080"


def owner(facts: Facts) -> Iterator[Finding]:
    """Whether somebody runs the query now: starting it again would fence them."""
    found = facts.transactional_id
    if found is None:
        return
    if found.error is not None:
        yield unknown("owner", f"the transactional id {found.name} could not be looked at: {found.error}")
    elif found.known is None:
        yield ok("owner", f"the transactional id {found.name} is free")
    elif found.known.hangs(facts.now_ms):
        yield problem(
            "owner",
            f"a transaction under {found.name} is open for {_open(found.known, facts)}, longer than its timeout, and "
            f"the broker has not aborted it",
            f"sparkonce transactions abort {found.name}",
        )
    elif found.known.is_open:
        yield warning(
            "owner",
            f"a transaction is open under {found.name} for {_open(found.known, facts)}: {_who(found.known)} runs the "
            f"query now",
            "Leave it running, or stop it before you start another: the older one would be fenced",
        )
    elif found.owner_lives_here:
        yield warning(
            "owner",
            f"{_who(found.known)} claimed {found.name} last, and is alive on this host",
            "Leave it running, or stop it before you start another: the older one would be fenced",
        )
    else:
        yield ok("owner", f"no transaction is open under {found.name}; last used by {_who(found.known)}")


def _open(known: KnownTransaction, facts: Facts) -> str:
    return duration(known.open_ms(facts.now_ms) or 0)


def _who(known: KnownTransaction) -> str:
    return str(known.claim.owner) if known.claim.owner is not None else "a program that is not sparkonce"


def checkpoint(facts: Facts) -> Iterator[Finding]:
    """Whether the checkpoint can be read, and fits what is in Kafka."""
    found = facts.checkpoint
    if found is None:
        yield unknown("checkpoint", facts.checkpoint_error or "it could not be read")
        return
    marker = _marker(facts)
    claim = facts.transactional_id.known.claim if facts.transactional_id and facts.transactional_id.known else None
    if claim is not None and claim.problem is not None:
        yield problem("checkpoint", claim.problem, "Give the sink a transactional_id of its own")
    elif found.planned is None:
        yield from _new(found, marker)
    elif marker is None:
        yield from _without_marker(facts, found)
    else:
        yield _fitting(found, marker)


def _marker(facts: Facts) -> Marker | None:
    known = facts.transactional_id.known if facts.transactional_id is not None else None
    return known.claim.marker if known is not None else None


def _new(found: Checkpoint, marker: Marker | None) -> Iterator[Finding]:
    if marker is None:
        yield ok("checkpoint", f"{found.folder} has no micro-batch yet: the first start begins anew")
        return
    yield warning(
        "checkpoint",
        f"{found.folder} has no micro-batch yet, but the transactional id has committed batch {marker.batch_id} of "
        f"query {marker.owner.query_id}: the next start begins anew, and what it writes comes on top",
        "If the query shall go on, give it the checkpoint that it had; else nothing is to do",
    )


def _without_marker(facts: Facts, found: Checkpoint) -> Iterator[Finding]:
    batch = found.unfinished
    if batch is None or facts.query.transactional_id is None:
        yield ok("checkpoint", _state_text(found))
        return
    text = facts.sink.configs.get("offsets.retention.minutes") if facts.sink is not None else None
    life_ms = int(text or DEFAULT_MARKER_LIFE_MINUTES) * 60_000
    age_ms = facts.now_ms - batch.planned_ms
    if age_ms < life_ms:
        yield ok("checkpoint", f"{_state_text(found)}; Kafka has no marker, so it is not in the output and runs again")
        return
    yield problem(
        "checkpoint",
        f"batch {batch.batch_id} was planned {duration(age_ms)} ago and is not committed, and Kafka keeps markers for "
        f"{duration(life_ms)}: whether it is in the output cannot be known any more",
        "Look at the output, then: sparkonce recover FILE --assume committed, or --assume not-committed",
    )


def _fitting(found: Checkpoint, marker: Marker) -> Finding:
    newest = found.planned.batch_id if found.planned is not None else -1
    if marker.owner.query_id != found.query_id:
        return problem(
            "checkpoint",
            f"the transactional id was last used by {marker.owner} for its batch {marker.batch_id}, but the checkpoint "
            f"is that of query {found.query_id}: two queries share the id, or the checkpoint was copied",
            "Give this query a transactional_id of its own, or the checkpoint that belongs to it",
        )
    if marker.batch_id > newest:
        return problem(
            "checkpoint",
            f"Kafka has batch {marker.batch_id}, the checkpoint knows only up to {newest}: it is older than the "
            f"output, a backup perhaps. The query would refuse to run",
            "Restore the newest checkpoint, or start anew with another transactional_id and an empty one",
        )
    if found.planned is not None and marker.batch_id == newest and marker.offsets_digest != found.planned.digest:
        return problem(
            "checkpoint",
            f"Kafka has batch {newest} with other offsets than the checkpoint: it is not the one that wrote the output",
            "Restore the newest checkpoint, or start anew with another transactional_id and an empty one",
        )
    where = "is in the output already" if marker.batch_id == newest else "is not in the output, and runs again"
    suffix = f"; batch {newest} {where}" if found.unfinished is not None else f"; Kafka has batch {marker.batch_id}"
    return ok("checkpoint", f"{_state_text(found)}{suffix}")


def _state_text(found: Checkpoint) -> str:
    committed = "none" if found.committed is None else f"batch {found.committed.batch_id}"
    text = f"committed is {committed}"
    return f"{text}, batch {found.unfinished.batch_id} is planned" if found.unfinished is not None else text


def positions(facts: Facts) -> Iterator[Finding]:
    """Whether what is to be read next is still there."""
    found = facts.positions
    lost = {tp: found.earliest[tp] - at for tp, at in found.next_start.items() if found.earliest.get(tp, -1) > at}
    cut = [tp for tp, at in found.next_start.items() if tp in found.latest and found.latest[tp] < at]
    remade = remade_topics(found)
    if remade:
        yield problem(
            "records",
            f"{listed(remade)}: deleted and made anew since it was last read; what was not read is lost",
            "Set fail_on_data_loss = false in the source to go on with the new topic, or start with a new checkpoint",
        )
    if lost and not remade:
        yield problem(
            "records",
            f"{sum(lost.values()):,} offsets of {listed(sorted(lost))} were deleted before they were read",
            "Set fail_on_data_loss = false in the source to go on without them, and retention.ms longer than the query "
            "may be down",
        )
    if cut and not remade:
        yield problem(
            "records",
            f"the logs of {listed(sorted(cut))} end before what was read: records were lost on the brokers",
            "Look for an unclean leader election; set fail_on_data_loss = false to go on at the ends of the logs",
        )
    if found.next_start and not (lost or cut or remade):
        pending = sum(max(0, found.latest.get(tp, at) - at) for tp, at in found.next_start.items())
        yield ok("records", f"everything that is to be read is there; {pending:,} offsets are waiting")


def remade_topics(found: SourcePositions) -> list[str]:
    """Topics that have another id than when they were last read."""
    ids = found.topic_ids
    return sorted(topic for topic, known in found.known_ids.items() if ids.get(topic, known) != known)


def stores(facts: Facts) -> Iterator[Finding]:
    """Whether databases are set up for prepared transactions, and what was left in them."""
    for store in facts.stores:
        if store.error is not None:
            yield problem("stores", f"{store.name}: {store.error}", "Change what the server says, then look again")
        elif store.leftovers:
            yield _leftovers(store, facts)
        else:
            word = (
                "can prepare transactions, and has none in doubt" if store.prepares else "answers; nothing is in doubt"
            )
            yield ok("stores", f"{store.name} {word}")


def _leftovers(store: StoreFacts, facts: Facts) -> Finding:
    named = f"{count(len(store.leftovers), 'branch', 'branches')} in doubt ({listed(store.leftovers, 2)})"
    known = facts.transactional_id.known if facts.transactional_id is not None else None
    if known is not None and known.is_open:
        return ok("stores", f"{store.name} has {named}, of the micro-batch that is running")
    return warning(
        "stores",
        f"{store.name} has {named}: their rows stay locked until the query starts again",
        "Start the query: it commits or rolls them back by its last decision. Do not end them by hand",
    )


def groups(facts: Facts) -> Iterator[Finding]:
    """Whether somebody else consumes with the query's groups."""
    for group in facts.groups:
        if group.has_members:
            yield problem(
                "owner",
                f"{group.what} group {group.name} has members: a consumer with this group.id commits its own offsets",
                "Stop that consumer, or give it another group.id",
            )
