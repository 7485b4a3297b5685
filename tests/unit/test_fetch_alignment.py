"""How far topic partitions may be read so that none runs ahead of the others."""

from __future__ import annotations

from sparkonce.fetch.alignment import Upcoming, aligned_ends, horizon_ms
from sparkonce.model import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))


def test_the_oldest_unread_record_decides() -> None:
    upcoming = {A: Upcoming((5, 6), (1_000, 9_000)), B: Upcoming((2,), (3_000,))}
    assert horizon_ms(upcoming, {}, 500) == 1_500
    assert horizon_ms(upcoming, {C: 200}, 500) == 700


def test_each_ends_before_the_first_record_that_is_too_new() -> None:
    upcoming = {A: Upcoming((5,), (1_000,)), B: Upcoming((2,), (3_000,))}
    ends = aligned_ends({A: 5, B: 2, C: 7}, {A: 50, B: 20, C: 7}, upcoming, {A: 30, B: 2}, 1_500)
    assert ends == {A: 30, B: 2, C: 7}
    assert aligned_ends({A: 5}, {A: 50}, upcoming, {A: -1}, 1_500) == {A: 50}
    assert aligned_ends({A: 5}, {A: 20}, upcoming, {A: 30}, 1_500) == {A: 20}


def test_records_out_of_order_do_not_stop_it() -> None:
    # The log reached the horizon at offset 1, which was read long ago: only the records looked at are known.
    upcoming = {A: Upcoming((5, 6, 8, 9), (1_000, 1_400, 1_500, 1_000)), B: Upcoming((2,), (3_000,))}
    ends = aligned_ends({A: 5, B: 2}, {A: 50, B: 20}, upcoming, {A: 1, B: 0}, 1_500)
    assert ends == {A: 7, B: 2}
