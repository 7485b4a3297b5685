"""Every error that sparkonce raises, by what its reader has to do about it.

The verdict is the class: a caller catches the branch it can act on and lets the others pass. Nothing here knows
Kafka; `sparkonce.wire.verdicts` maps Kafka's error codes to these classes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What lies behind an error, for code that has to look closer than the verdict.

    `code` is None when no answer came: then `name` says how the connection failed.
    """

    api: str
    code: int | None
    name: str
    subject: str


class SparkonceError(Exception):
    """The root of all errors of this package."""

    def __init__(self, message: str, *, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


class RetriableError(SparkonceError):
    """It may pass: the same request can be sent again. Raised when the deadline ended the retries."""


class AbortableError(SparkonceError):
    """This attempt cannot go on; abort it. Nothing of it is visible, and a new attempt may succeed."""


class FencedError(SparkonceError):
    """Another process has taken over the transactional id. This one must stop for good."""


class InDoubtError(SparkonceError):
    """The outcome is unknown: it may or may not have taken effect. Never to be reported as failed."""


class MissingMarkerError(InDoubtError):
    """Kafka may have forgotten whether this micro-batch is committed; a person has to decide."""


class UsageError(SparkonceError):
    """A person has to change something: an option, a permission, a topic, the data."""


class StoppedError(SparkonceError):
    """The query was asked to finish: this micro-batch is not begun any more, and runs at the next start."""


class CorruptRecordsError(AbortableError):
    """Bytes that should be Kafka records are not. The message names topic, partition and offset where known."""
