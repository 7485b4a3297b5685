"""What a store must be able to do to take part, and what a task does with it.

The steps are those of Flink's TwoPhaseCommitSinkFunction: begin, write, pre-commit (in tasks), commit, abort (in the
driver, or in the next one after a crash). Knows no store and no Spark.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sparkonce.commit.branch import Branch, parse_branch


@dataclass(frozen=True, slots=True)
class Handle:
    """A prepared branch: all that is needed to commit or abort it, from any process."""

    branch: Branch
    rows: int | None = field(default=None, compare=False)
    """How many rows it has; None if it was found as a leftover."""

    def to_text(self) -> str:
        """As JSON, for Spark's result."""
        return json.dumps({"branch": self.branch.name, "rows": self.rows})

    @classmethod
    def from_text(cls, text: str) -> Handle:
        """Reads `to_text`."""
        fields = json.loads(text)
        branch = parse_branch(fields["branch"])
        if branch is None:
            raise ValueError(f"{fields['branch']!r} is not the name of a branch")
        return cls(branch, fields["rows"])


class BranchWriter(ABC):
    """An open branch in the hands of one task. Exactly one of `pre_commit` and `discard` ends it."""

    @abstractmethod
    def write(self, arrow_batch: pa.RecordBatch) -> None:
        """Takes rows; nobody sees them yet."""

    @abstractmethod
    def pre_commit(self) -> None:
        """When it returns, the rows are safe and can be committed by another process, even after a crash of the store.

        It keeps nothing open: a store that ties a prepared branch to its connection must be disconnected from.
        """

    @abstractmethod
    def discard(self) -> None:
        """Gives up what was not prepared; must not raise. Also called after `pre_commit` failed."""


class Participant(ABC):
    """A sink in a store: a small frozen description that can be pickled, without any live resource.

    Whatever the store raises is translated to the classes of `sparkonce.errors`: RetriableError where asking again may
    help, AbortableError where the micro-batch has to run again, UsageError where a person has to change something.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Which sink of the query this is; the same after every restart. No two sinks of a query share it."""

    @property
    def kept_together(self) -> tuple[str, ...]:
        """Columns by whose values rows must be kept together: rows that are equal there must come from one task."""
        return ()

    def preflight(self, branches: int) -> None:  # noqa: B027  Nothing to look at is a fine answer.
        """Before the first micro-batch: is the store set up for that many branches at a time? UsageError if not."""

    def check(self, schema: pa.Schema) -> None:  # noqa: B027
        """Before a job: can the store take these columns? UsageError if not."""

    @abstractmethod
    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        """Opens a branch, in a task."""

    @abstractmethod
    def commit(self, handles: Sequence[Handle]) -> None:
        """Makes prepared branches visible: all those of one decided micro-batch that are not known to be committed.

        A store that can do so makes them visible in one step; `for_each` does one after the other. A branch that is
        committed already, by whomever, counts as done.
        """

    @abstractmethod
    def abort(self, handles: Sequence[Handle]) -> None:
        """Rolls prepared branches back. A branch that does not exist counts as done."""

    @abstractmethod
    def in_doubt(self, query: str) -> list[Handle]:
        """All branches that are prepared and neither committed nor aborted, of the query with this digest.

        It may list those of other sinks of the query, if this one can finish them too.
        """


def leftovers(names: Iterable[str], query: str) -> list[Handle]:
    """From the names that a store lists to the handles of one query; what is not ours is left out."""
    branches = [parse_branch(name) for name in names]
    return [Handle(branch) for branch in branches if branch is not None and branch.query == query]


def for_each(handles: Sequence[Handle], finish: Callable[[Handle], None]) -> None:
    """One after the other; a failure does not stop the others, and the first one is raised at the end."""
    first: Exception | None = None
    for handle in handles:
        try:
            finish(handle)
        except Exception as error:  # whatever it is, the others must have their turn
            first = first or error
    if first is not None:
        raise first


class BranchOutput:
    """A task's share in one sink: the branch begins with the first row, so a task without rows leaves nothing."""

    def __init__(self, participant: Participant, branch: Branch) -> None:
        self._participant = participant
        self._branch = branch
        self._writer: BranchWriter | None = None
        self._rows = 0

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        """Takes rows."""
        if arrow_batch.num_rows == 0:
            return
        if self._writer is None:
            self._writer = self._participant.begin(self._branch, arrow_batch.schema)
        self._writer.write(arrow_batch)
        self._rows += arrow_batch.num_rows

    def pre_commit(self) -> Handle | None:
        """The handle for the driver; None if there were no rows."""
        if self._writer is None:
            return None
        self._writer.pre_commit()
        self._writer = None
        return Handle(self._branch, self._rows)

    def discard(self) -> None:
        """Gives up what is not prepared, if anything."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None


def write_branch(participant: Participant, branch: Branch, arrow_batches: Iterable[pa.RecordBatch]) -> Handle | None:
    """The whole of a task that writes one sink. Only an attempt that the driver permitted may call it: see `runner`."""
    output = BranchOutput(participant, branch)
    try:
        for arrow_batch in arrow_batches:
            output.write(arrow_batch)
        return output.pre_commit()
    finally:
        output.discard()
