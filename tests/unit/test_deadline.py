from __future__ import annotations

import time

import pytest

from sparkonce.deadline import Deadline, backoff_ms


def test_a_deadline_counts_down_to_zero_and_stays_there() -> None:
    deadline = Deadline.after_ms(20)
    first = deadline.remaining_seconds
    assert 0 < first <= 0.02
    assert not deadline.expired
    passed = Deadline(time.monotonic() - 1, 5)
    assert passed.remaining_seconds == 0
    assert passed.remaining_ms == 0
    assert passed.expired


def test_the_sooner_of_two() -> None:
    deadline = Deadline.after_ms(1_000)
    assert deadline.sooner_ms(60_000) is deadline
    sooner = deadline.sooner_ms(10)
    assert sooner.at < deadline.at
    assert sooner.total_ms == 10


def test_backoff_doubles_up_to_its_cap() -> None:
    assert [backoff_ms(attempt, 50, 1_000, 0.5) for attempt in range(6)] == [50, 100, 200, 400, 800, 1_000]
    assert backoff_ms(10_000, 50, 1_000, 0.5) == 1_000


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, 80.0), (0.5, 100.0), (1.0, 120.0)])
def test_backoff_is_spread_by_a_fifth(jitter: float, expected: float) -> None:
    assert backoff_ms(0, 100, 1_000, jitter) == pytest.approx(expected)
