"""Ending an open transaction by fencing: a plain InitProducerId takes the id over, and the broker aborts what is open.

Whoever held the id can write nothing more under it: a driver of ours stops with a FencedError that names us.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkonce.errors import UsageError
from sparkonce.model import ProducerIdentity
from sparkonce.ops.transactions import KnownTransaction, OpenRange, describe, still_open
from sparkonce.transaction import Owner
from sparkonce.transaction.marker import format_owner, owner_group
from sparkonce.wire import Client, GroupOffset, commit_offsets, init_producer

ABORTED_BY_HAND = "none (sparkonce transactions abort)"
"""What the owner's group says instead of a query, so that the driver that was fenced can tell why."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """What happened."""

    before: KnownTransaction
    after: KnownTransaction
    identity: ProducerIdentity
    still_open: tuple[OpenRange, ...]
    """Nothing, unless this client may not know better, or the transaction hangs."""


def require_abortable(known: KnownTransaction) -> None:
    """UsageError if there is nothing to abort: fencing would only stop whoever holds the id."""
    state, name = known.description.state, known.transactional_id
    if state in ("PrepareCommit", "PrepareAbort", "PrepareEpochFence"):
        word = "committed" if state == "PrepareCommit" else "aborted"
        raise UsageError(f"the transaction of {name} is being {word} by the broker already; there is nothing to abort")
    if not known.is_open:
        raise UsageError(
            f"no transaction is open under {name} (its state is {state}); there is nothing to abort. One that hangs in "
            f"a topic partition without its coordinator is shown by `sparkonce transactions list`"
        )


def abort(client: Client, known: KnownTransaction) -> Aborted:
    """Takes the id over; an answer means that all abort markers are written."""
    require_abortable(known)
    leave_name(client, known, ABORTED_BY_HAND)
    identity = init_producer(client, known.transactional_id, known.description.timeout_ms)
    after = describe(client, known.transactional_id)
    return Aborted(known, after, identity, tuple(still_open(client, known.description)))


def leave_name(client: Client, known: KnownTransaction, reason: str) -> None:
    """Leaves our name where the driver that is replaced looks for it, as a driver does that claims the id."""
    if known.claim.home is None:
        return
    announced = GroupOffset(0, format_owner(Owner.here(reason)))
    commit_offsets(client, owner_group(known.transactional_id), {known.claim.home: announced})
