"""One deadline for a whole operation, passed down through its steps; waiting until it; pauses between retries.

Knows nothing about what is being waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock.

    It is bound to this process: pass the milliseconds on, not the deadline, when work moves elsewhere.
    """

    at: float
    total_ms: int

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment that many seconds from now."""
        return cls(time.monotonic() + seconds, int(seconds * 1000))

    @classmethod
    def after_ms(cls, total_ms: int) -> Deadline:
        """The moment that many milliseconds from now."""
        return cls(time.monotonic() + total_ms / 1000, total_ms)

    @property
    def remaining_seconds(self) -> float:
        """What is left, never below zero."""
        return max(0.0, self.at - time.monotonic())

    @property
    def remaining_ms(self) -> int:
        """What is left, never below zero."""
        return int(self.remaining_seconds * 1000)

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.at

    def sooner_ms(self, limit_ms: int) -> Deadline:
        """This deadline, or the moment `limit_ms` from now if that comes first."""
        other = Deadline.after_ms(limit_ms)
        return other if other.at < self.at else self


def wait_until(condition: Callable[[], bool], deadline: Deadline) -> bool:
    """Whether the condition came true before the deadline; it is asked at least once."""
    while not condition():
        if deadline.expired:
            return False
        time.sleep(min(_POLL_SECONDS, deadline.remaining_seconds))
    return True


def backoff_ms(attempt: int, first_ms: int, max_ms: int, jitter: float) -> float:
    """The pause after the given attempt (counted from 0): doubled each time, capped, spread by ±20 %.

    `jitter` is a number from 0 to 1, drawn by the caller, so that many tasks that failed together do not come back
    together.
    """
    # The exponent is bounded because 2.0 ** 2000 would overflow long before the cap is applied.
    doubled = min(float(max_ms), first_ms * 2.0 ** min(attempt, 32))
    return doubled * (0.8 + 0.4 * jitter)
