"""What Spark keeps for us, and how the next micro-batch follows from it."""

from __future__ import annotations

import json

import pytest

from sparkonce.errors import UsageError
from sparkonce.fetch import UNSTARTED, OffsetRange, Progress, progress_from_json, ranges_between
from sparkonce.fetch.offset_maps import flat
from sparkonce.fetch.planning import (
    moved_within,
    new_partitions,
    next_progress,
    only_stopping,
    refuse_vanished,
    require_before_stop,
    require_within,
    until_stop,
)
from sparkonce.fetch.subscription import Subscribed
from sparkonce.model import TopicPartition

A, B, C = (TopicPartition("t", index) for index in (0, 1, 10))
IDS = {"t": "id-1"}
FOUND = Subscribed((A, B), IDS)


def test_the_text_in_the_log() -> None:
    progress = Progress({C: 1, A: 0, B: 2}, {C: 5, B: 2, A: 9}, IDS)
    text = json.dumps(progress.to_json())
    assert text == (
        '{"version": 1, "start": {"t": {"0": 0, "1": 2, "10": 1}}, "end": {"t": {"0": 9, "1": 2, "10": 5}}, '
        '"topicIds": {"t": "id-1"}}'
    )
    assert progress_from_json(json.loads(text)) == progress
    assert progress_from_json(UNSTARTED.to_json()) == UNSTARTED


def test_a_version_from_the_future() -> None:
    with pytest.raises(UsageError, match="version 2; this sparkonce knows version 1"):
        progress_from_json({"version": 2})


@pytest.mark.parametrize("text", ['{"t": 5}', '{"t": {"0": "5"}}', '{"t": {"x": 5}}', "[]", '{"t": {"0": true}}', "5"])
def test_what_are_no_offsets(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets must look like"):
        flat(json.loads(text), "startingOffsets")


def test_the_first_start_is_frozen() -> None:
    planned = next_progress(UNSTARTED, FOUND, {A: 5, B: 7}, {A: 9, B: 7})
    assert planned == Progress({A: 5, B: 7}, {A: 9, B: 7}, IDS)
    # After a crash Spark asks for the same batch again, from the offset of a query that has not started.
    assert ranges_between(UNSTARTED, planned) == (OffsetRange(A, 5, 9),)
    later = next_progress(planned, FOUND, {}, {A: 11, B: 8})
    assert later.start == planned.start
    assert ranges_between(planned, later) == (OffsetRange(A, 9, 11), OffsetRange(B, 7, 8))


def test_a_first_plan_without_records_is_still_written_down() -> None:
    planned = next_progress(UNSTARTED, FOUND, {A: 5, B: 7}, {A: 5, B: 7})
    assert planned != UNSTARTED
    assert planned.started
    assert ranges_between(UNSTARTED, planned) == ()
    assert next_progress(planned, FOUND, {}, {A: 5, B: 7}) == planned


def test_a_new_partition_begins_where_it_was_found() -> None:
    before = Progress({A: 5}, {A: 9}, IDS)
    assert new_partitions(before, FOUND) == [B]
    after = next_progress(before, FOUND, {B: 2}, {A: 9, B: 6})
    assert after == Progress({A: 5, B: 2}, {A: 9, B: 6}, IDS)
    assert ranges_between(before, after) == (OffsetRange(B, 2, 6),)


def test_ends_never_go_back() -> None:
    before = Progress({A: 0, B: 0}, {A: 100, B: 50}, IDS)
    assert next_progress(before, FOUND, {}, {A: 90, B: 60}).end == {A: 100, B: 60}


def test_a_topic_made_anew() -> None:
    before = Progress({A: 0, B: 0}, {A: 100, B: 50}, IDS)
    renewed = Subscribed((A, B), {"t": "id-2"})
    with pytest.raises(UsageError, match="t was deleted and made anew"):
        refuse_vanished(before, renewed)
    assert new_partitions(before, renewed) == [A, B]
    after = next_progress(before, renewed, {A: 0, B: 0}, {A: 3, B: 0})
    assert after == Progress({A: 0, B: 0}, {A: 3, B: 0}, {"t": "id-2"})
    assert ranges_between(before, after) == (OffsetRange(A, 0, 3),)


def test_vanished_partitions() -> None:
    before = Progress({A: 0, B: 0}, {A: 100, B: 50}, IDS)
    refuse_vanished(before, FOUND)
    with pytest.raises(UsageError, match="t-1 no longer exist"):
        refuse_vanished(before, Subscribed((A,), IDS))
    assert next_progress(before, Subscribed((A,), IDS), {}, {A: 101}) == Progress({A: 0}, {A: 101}, IDS)


def test_starts_outside_of_the_log() -> None:
    earliest, latest = {A: 10, B: 10}, {A: 20, B: 20}
    require_within({A: 10, B: 20}, earliest, latest)
    for outside in (9, 21):
        with pytest.raises(UsageError, match=rf"t-1 cannot be read from offset {outside}: it has 10 .* 20"):
            require_within({A: 10, B: outside}, earliest, latest)
    assert moved_within({A: 9, B: 21}, earliest, latest) == {A: 10, B: 20}


def test_offsets_of_the_built_in_source() -> None:
    before = progress_from_json({"t": {"0": 5, "1": 6}})
    assert before == Progress({}, {A: 5, B: 6})
    after = next_progress(before, FOUND, {}, {A: 9, B: 6})
    assert after == Progress({A: 5, B: 6}, {A: 9, B: 6}, IDS)
    assert ranges_between(before, after) == (OffsetRange(A, 5, 9),)
    # A micro-batch that the built-in source had planned and not finished.
    assert ranges_between(before, progress_from_json({"t": {"0": 7, "1": 8}})) == (
        OffsetRange(A, 5, 7),
        OffsetRange(B, 6, 8),
    )
    assert progress_from_json({"version": {"0": 5}}).end == {TopicPartition("version", 0): 5}


def test_an_unfinished_first_batch_of_the_built_in_source() -> None:
    with pytest.raises(UsageError, match=r"t-0 begins. Let the query finish it with format\('kafka'\) once"):
        ranges_between(UNSTARTED, progress_from_json({"t": {"0": 5}}))


def test_a_stop_is_kept_and_never_passed() -> None:
    stop = {A: 8, B: 7}
    planned = next_progress(UNSTARTED, FOUND, {A: 5, B: 7}, until_stop({A: 20, B: 30}, stop), stop)
    assert planned.end == stop
    assert progress_from_json(planned.to_json()) == planned
    assert until_stop({A: 20, B: 3, C: 9}, stop) == {A: 8, B: 3}
    assert only_stopping(Subscribed((A, B, C), IDS), stop) == FOUND
    require_before_stop({A: 8, B: 7}, stop)
    with pytest.raises(UsageError, match="t-0: the start, offset 9, lies behind the end, offset 8"):
        require_before_stop({A: 9, B: 7}, stop)
