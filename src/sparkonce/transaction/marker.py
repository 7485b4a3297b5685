"""The marker: what a committed micro-batch leaves in Kafka, inside its own transaction.

It is the metadata of one offset of a group that belongs to the sink alone. Whoever finds it knows that the whole batch
is committed; whoever does not knows that nothing of it is. Pure: values in, text out.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from typing import Any

from sparkonce.errors import UsageError
from sparkonce.model import ProducerIdentity

VERSION = 1
GROUP_PREFIX = "sparkonce."
# Not a suffix of the marker's group: the ids "x" and "x.owner" would then meet in one group.
OWNER_GROUP_PREFIX = "sparkonce-owner."


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs the query: for the error of the driver that was replaced."""

    host: str
    process_id: int
    query_id: str

    @classmethod
    def here(cls, query_id: str) -> Owner:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), query_id)

    def __str__(self) -> str:
        return f"process {self.process_id} on {self.host}, query {self.query_id}"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last micro-batch that was committed under a transactional id."""

    batch_id: int
    owner: Owner
    producer: ProducerIdentity
    offsets_digest: str
    """Of the batch's end offsets, so that a batch with the same number but other content is noticed."""


def marker_group(transactional_id: str) -> str:
    """The group under which a sink keeps its marker."""
    return f"{GROUP_PREFIX}{transactional_id}"


def owner_group(transactional_id: str) -> str:
    """The group under which a driver leaves its name when it claims the id, outside of any transaction."""
    return f"{OWNER_GROUP_PREFIX}{transactional_id}"


def format_owner(owner: Owner) -> str:
    """As text for the owner's group."""
    return json.dumps({"version": VERSION, **asdict(owner)}, separators=(",", ":"))


def parse_owner(text: str) -> Owner | None:
    """Reads what `format_owner` wrote; None if it is something else, since it only serves an error message."""
    fields = _object(text) or {}
    try:
        return Owner(str(fields["host"]), int(fields["process_id"]), str(fields["query_id"]))
    except (KeyError, TypeError, ValueError):
        return None


def format_marker(marker: Marker) -> str:
    """As text, at most some hundred bytes of the 4,096 that Kafka allows."""
    return json.dumps({"version": VERSION, **asdict(marker)}, separators=(",", ":"))


def parse_marker(text: str, transactional_id: str) -> Marker:
    """Reads what `format_marker` wrote; what another program put there is a usage error."""
    fields = _object(text)
    if fields is None or "version" not in fields:
        raise _foreign(transactional_id)
    version = fields["version"]
    if version != VERSION:
        raise UsageError(
            f"the marker of transactional id {transactional_id} has version {version}, this sparkonce knows "
            f"{VERSION}; run the version that wrote it, or a later one"
        )
    try:
        return Marker(
            batch_id=int(fields["batch_id"]),
            owner=Owner(**fields["owner"]),
            producer=ProducerIdentity(**fields["producer"]),
            offsets_digest=str(fields["offsets_digest"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(transactional_id) from error


def _object(text: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _foreign(transactional_id: str) -> UsageError:
    return UsageError(
        f"group {marker_group(transactional_id)} holds offsets that sparkonce did not write; "
        f"give this query another transactional_id"
    )
