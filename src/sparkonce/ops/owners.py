"""Who holds a transactional id: what drivers of ours left in their groups, and whether they still live."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass

from sparkonce.errors import SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.transaction import Marker, Owner, marker_group
from sparkonce.transaction.kafka_transaction import newest
from sparkonce.transaction.marker import owner_group, parse_marker, parse_owner
from sparkonce.wire import (
    Client,
    Deadline,
    GroupOffset,
    TransactionDescription,
    committed_offsets,
    describe_transaction,
)

ID_UNKNOWN = 105


@dataclass(frozen=True, slots=True)
class Claim:
    """What drivers of ours left behind under a transactional id."""

    owner: Owner | None = None
    """Who claimed the id last."""
    marker: Marker | None = None
    """The last micro-batch that was committed."""
    home: TopicPartition | None = None
    """The topic partition under which they are kept."""
    problem: str | None = None
    """Why the marker cannot be read."""

    @property
    def is_ours(self) -> bool:
        """Whether sparkonce used the id at all."""
        return self.owner is not None or self.marker is not None


def read_claim(client: Client, transactional_id: str, producer_id: int = -1, deadline: Deadline | None = None) -> Claim:
    """Reads owner and marker as they are committed now; an open transaction may be about to change the marker."""
    owners = _offsets(client, owner_group(transactional_id), deadline)
    markers = _offsets(client, marker_group(transactional_id), deadline)
    found = [(home, owner) for home, value in owners.items() if (owner := parse_owner(value.metadata)) is not None]
    home = found[-1][0] if found else next(iter(markers), None)
    owner = found[-1][1] if found else None
    try:
        marker = newest([parse_marker(v.metadata, transactional_id) for v in markers.values()], producer_id)
    except UsageError as error:
        return Claim(owner, None, home, str(error))
    return Claim(owner, marker, home)


def _offsets(client: Client, group: str, deadline: Deadline | None) -> dict[TopicPartition, GroupOffset]:
    return committed_offsets(client, group, deadline=deadline, require_stable=False)


def claimed_ids(groups: Collection[str]) -> set[str]:
    """The transactional ids that sparkonce used, from the names of all groups."""
    prefixes = owner_group(""), marker_group("")
    return {name.removeprefix(prefix) for name in groups for prefix in prefixes if name.startswith(prefix)}


def stored(client: Client, transactional_id: str, deadline: Deadline | None = None) -> TransactionDescription | None:
    """What the coordinator has of the id; None if it does not know it."""
    try:
        return describe_transaction(client, transactional_id, deadline)
    except SparkonceError as error:
        if error.fault is None or error.fault.code != ID_UNKNOWN:
            raise
        return None


def lives_here(owner: Owner | None) -> bool:
    """Whether the owner's process runs on this host. Of another host nothing can be said."""
    if owner is None or owner.host != socket.gethostname() or owner.process_id == os.getpid():
        return False
    try:
        os.kill(owner.process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # It belongs to another user.
    return True
