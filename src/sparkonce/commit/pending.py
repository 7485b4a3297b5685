"""Decided branches that are not committed yet, by the rules of Flink's `notifyCheckpointComplete`.

A notice for a micro-batch commits everything at or below it. A participant that fails does not stop the others, keeps
what it could not commit for the next notice, and its error is raised at the end. Within one participant the order of
micro-batches is kept: what comes after a failure waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.commit.participant import Handle, Participant

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one participant has pending of one micro-batch."""

    batch_id: int
    participant: Participant
    handles: tuple[Handle, ...]


class PendingCommits:
    """The driver's book of what it still has to commit. It is lost with the driver; the stores list the same again."""

    def __init__(self) -> None:
        self._shares: list[_Share] = []

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, batch_id: int, participant: Participant, handles: Sequence[Handle]) -> None:
        """Remembers prepared branches until a notice comes for their micro-batch or a later one."""
        if handles:
            self._shares.append(_Share(batch_id, participant, tuple(handles)))

    def drop(self) -> None:
        """Forgets everything: for a claim, after which the stores are asked what is pending."""
        self._shares = []

    def notify(self, batch_id: int) -> None:
        """Commits everything at or below the micro-batch; raises the first error after all had their turn."""
        due = sorted((share for share in self._shares if share.batch_id <= batch_id), key=lambda share: share.batch_id)
        if not due:
            log.warning("batch %d is decided, but nothing is pending for it", batch_id)
        failed: dict[str, Exception] = {}
        for share in due:
            if share.participant.name in failed:
                continue
            try:
                share.participant.commit(share.handles)
            except Exception as error:  # whatever it is, the others must have their turn
                log.warning("sink %s could not commit batch %d: %s", share.participant.name, share.batch_id, error)
                failed[share.participant.name] = error
            else:
                self._shares.remove(share)
        if failed:
            raise next(iter(failed.values()))
