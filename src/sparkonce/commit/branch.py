"""Branches: one task's share of a micro-batch in one sink, and the name under which a store prepares it.

The name is all that is left of a branch when every process of ours is gone, so it says all that decides its fate:

    sparkonce.1.<query>.<micro-batch>.<epoch> / <sink>.<spark partition>.<attempt>
    ──────────── global transaction ─────────   ──────────── branch ─────────────
    at most 64 bytes                            at most 64 bytes

XA takes the two halves apart (gtrid, bqual: 64 bytes each), PostgreSQL the whole (below 200 bytes). Query and sink are
digests, because their names have no bound. What does not parse is not ours, and is never touched. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_PREFIX = "sparkonce.1."
_NUMBER = r"(0|[1-9][0-9]{0,18})"
_NAME = re.compile(rf"sparkonce\.1\.([0-9a-f]{{12}})\.{_NUMBER}\.{_NUMBER}/([0-9a-f]{{8}})\.{_NUMBER}\.{_NUMBER}")
_MAX_NUMBER = 2**63 - 1


def query_digest(query_id: str) -> str:
    """The query in a branch's name."""
    return hashlib.sha256(query_id.encode()).hexdigest()[:12]


def sink_digest(name: str) -> str:
    """The sink in a branch's name."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, order=True)
class Branch:
    """Who prepared what."""

    query: str
    """Digest of the query's id."""
    batch_id: int
    epoch: int
    """One run of the micro-batch: no other run of any driver has it."""
    sink: str
    """Digest of the sink's name."""
    partition: int
    """Spark's partition."""
    attempt: int
    """Spark's task attempt id."""

    def __post_init__(self) -> None:
        for number in (self.batch_id, self.epoch, self.partition, self.attempt):
            if not 0 <= number <= _MAX_NUMBER:
                raise ValueError(f"{number} cannot be part of a branch's name")

    @property
    def global_id(self) -> str:
        """The first half of the name: the same for all branches of a run."""
        return f"{_PREFIX}{self.query}.{self.batch_id}.{self.epoch}"

    @property
    def qualifier(self) -> str:
        """The second half: the branch within the run."""
        return f"{self.sink}.{self.partition}.{self.attempt}"

    @property
    def name(self) -> str:
        """As stores keep it."""
        return f"{self.global_id}/{self.qualifier}"


def name_prefix(query: str) -> str:
    """How the names of a query's branches begin, for stores that can search by prefix."""
    return f"{_PREFIX}{query}."


def parse_branch(name: str) -> Branch | None:
    """Reads a name; None if it is not one of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    query, batch_id, epoch, sink, partition, attempt = found.groups()
    try:
        return Branch(query, int(batch_id), int(epoch), sink, int(partition), int(attempt))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a micro-batch. It travels to the tasks, which name their branches with it."""

    query: str
    batch_id: int
    epoch: int

    def branch(self, sink_name: str, partition: int, attempt: int) -> Branch:
        """The share of one task attempt in one sink."""
        return Branch(self.query, self.batch_id, self.epoch, sink_digest(sink_name), partition, attempt)

    def has(self, branch: Branch) -> bool:
        """Whether the branch belongs to this run."""
        return (branch.query, branch.batch_id, branch.epoch) == (self.query, self.batch_id, self.epoch)
