"""Signs that a query runs somewhere. None of them alone is certain, and a driver on another host may be waiting for its
next trigger without any: so what changes offsets also takes the transactional id over, which ends such a driver.
"""

from __future__ import annotations

from pathlib import Path
from time import sleep

from sparkonce.fetch.checkpoint import fingerprint
from sparkonce.ops.owners import Claim, lives_here, read_claim, stored
from sparkonce.ops.query import Query
from sparkonce.ops.transactions import KnownTransaction
from sparkonce.wire import Client
from sparkonce.wire.diagnosis import list_groups

WATCH_SECONDS = 3.0


def known_transaction(client: Client, transactional_id: str | None) -> KnownTransaction | None:
    """The query's id, if its coordinator knows it."""
    description = None if transactional_id is None else stored(client, transactional_id)
    if description is None or transactional_id is None:
        return None
    return KnownTransaction(description, read_claim(client, transactional_id, description.producer_id))


def signs_of_life(
    query: Query,
    folder: Path | None,
    *,
    owner_gone: bool = False,
) -> list[str]:
    """What speaks for a driver that runs this query now, in words."""
    connection = query.sink.connection if query.sink is not None else query.source.connection
    with Client(connection) as client:
        known = known_transaction(client, query.transactional_id)
        found = [*transaction_signs(known, owner_gone=owner_gone), *_member_signs(query, client)]
        before = _state(client, query, folder)
        if not found:
            sleep(WATCH_SECONDS)
            found += change_signs(before, _state(client, query, folder), WATCH_SECONDS)
    return found


def transaction_signs(known: KnownTransaction | None, *, owner_gone: bool) -> list[str]:
    """Pure but for the look at this host's processes."""
    if known is None:
        return []
    found = []
    if known.is_open:
        found.append(f"a transaction is open under {known.transactional_id} (its state is {known.description.state})")
    owner = known.claim.owner
    if owner is not None and not owner_gone and lives_here(owner):
        found.append(
            f"process {owner.process_id} on this host is alive, and claimed {known.transactional_id} last. If it is "
            f"another program by now, or has stopped this query, add --owner-gone"
        )
    return found


def _member_signs(query: Query, client: Client) -> list[str]:
    if not query.groups:
        return []
    listed = list_groups(client)
    if query.source.connection != (query.sink.connection if query.sink is not None else query.source.connection):
        with Client(query.source.connection) as source_client:
            listed = list_groups(source_client) | listed
    busy = [group for group in query.groups if group in listed and listed[group].has_members]
    return [f"group {group} has members: consumers that would commit over it" for group in busy]


Seen = tuple[tuple[int, int] | None, tuple[int, int] | None]
"""The checkpoint's newest micro-batches, planned and committed; the id's producer and epoch."""


def _state(client: Client, query: Query, folder: Path | None) -> Seen:
    known = known_transaction(client, query.transactional_id)
    epoch = None if known is None else (known.description.producer_id, known.description.producer_epoch)
    return (None if folder is None else fingerprint(folder)), epoch


def change_signs(before: Seen, after: Seen, seconds: float) -> list[str]:
    """Pure: what moved while we were watching."""
    words = ("the checkpoint", "the epoch of the transactional id")
    moved = [word for word, old, new in zip(words, before, after, strict=True) if old != new]
    return [f"{word} changed within {seconds:g} seconds" for word in moved]


def claim_of(known: KnownTransaction | None) -> Claim:
    """What drivers left, if anything."""
    return Claim() if known is None else known.claim
