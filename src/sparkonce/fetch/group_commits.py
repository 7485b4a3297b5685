"""Shows a group how far a query has read, after Spark has committed it. For monitoring: Spark's checkpoint decides.

A commit that fails is a warning and a number, never an error of the query; the next one carries newer offsets anyway.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sparkonce.deadline import Deadline
from sparkonce.errors import SparkonceError
from sparkonce.fetch.offset_maps import Offsets
from sparkonce.wire import Client, GroupOffset, commit_offsets

COMMIT_MS = 2_000
"""A micro-batch is not held up longer than this."""
PAUSE_MS = 10_000
"""After a failure no commit is tried for so long, so that a broken group does not hold up every micro-batch."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """How the commits of a query went."""

    succeeded: int = 0
    failed: int = 0


class GroupCommits:
    """The commits of one query to one group; one at a time, the newest offsets only."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self.committed: Offsets = {}
        """What the group was shown by this query."""
        self._pause = Deadline.after_ms(0)
        self.counts = CommitCounts()

    def commit(self, offsets: Offsets) -> None:
        """Commit what changed since the last time, if anything did."""
        news = {partition: offset for partition, offset in offsets.items() if self.committed.get(partition) != offset}
        if not news or not self._pause.expired:
            return
        values = {partition: GroupOffset(offset) for partition, offset in news.items()}
        try:
            commit_offsets(self._client, self._group, values, Deadline.after_ms(COMMIT_MS))
        except SparkonceError as error:
            self._pause = Deadline.after_ms(PAUSE_MS)
            self.counts = CommitCounts(self.counts.succeeded, self.counts.failed + 1)
            _log.warning("offsets of group %s could not be committed; the query goes on: %s", self._group, error)
            return
        self.committed = {**self.committed, **news}
        self.counts = CommitCounts(self.counts.succeeded + 1, self.counts.failed)
