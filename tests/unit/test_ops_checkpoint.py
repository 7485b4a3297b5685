"""Spark's checkpoint as plain files, read without Spark; and what may be changed in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkonce.errors import UsageError
from sparkonce.fetch.checkpoint import Checkpoint, fingerprint, parse_batch, read_checkpoint
from sparkonce.fetch.subscription import Subscribed
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.ops.lag import Standing
from sparkonce.ops.offset_changes import Wish, checkpoint_change, parse_wish, resolved
from sparkonce.ops.offset_files import apply_change
from sparkonce.spark.offset_log import parse_planned_batch
from sparkonce.transaction import Marker, Owner

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
QUERY = "11111111-2222-3333-4444-555555555555"
IDS = {"a": "id-of-a"}


def ours(end: Mapping[str, int]) -> str:
    return json.dumps({"version": 1, "start": {"a": {"0": 0, "1": 0}}, "end": {"a": dict(end)}, "topicIds": IDS})


def built_in(end: Mapping[str, int]) -> str:
    return json.dumps({"a": dict(end)}, separators=(",", ":"))


def entry(*sources: str, planned_ms: int = 1_000) -> str:
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": planned_ms}), *sources])


def write(folder: Path, planned: int, committed: int, source: Any = ours) -> Path:
    """A checkpoint in which micro-batch n ends at 10 · (n + 1) and 100 · (n + 1)."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(planned + 1):
        text = entry(source({"0": 10 * (number + 1), "1": 100 * (number + 1)}))
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(committed + 1):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def marker(batch_id: int, query_id: str = QUERY, digest: str = "d") -> Marker:
    return Marker(batch_id, Owner("host", 1, query_id), ProducerIdentity(7, 3), digest)


@pytest.mark.parametrize("source", [ours, built_in])
def test_the_newest_committed_batch_says_where_the_next_start_begins(tmp_path: Path, source: Any) -> None:
    found = read_checkpoint(str(write(tmp_path, planned=10, committed=9, source=source)))
    assert found.query_id == QUERY
    assert found.unfinished is not None
    assert found.unfinished.batch_id == 10
    assert found.next_start() == {A0: 100, A1: 1000}
    assert fingerprint(tmp_path) == (10, 9)


def test_a_checkpoint_that_does_not_exist_is_new(tmp_path: Path) -> None:
    found = read_checkpoint(f"file:{tmp_path / 'nothing'}")
    assert found.is_new
    assert found.next_start() == {}


def test_another_filesystem_is_named() -> None:
    with pytest.raises(UsageError, match=r"hdfs://name/checkpoint is not on a local folder.*where it runs"):
        read_checkpoint("hdfs://name/checkpoint")


def test_a_damaged_entry_and_another_version_are_named(tmp_path: Path) -> None:
    write(tmp_path, planned=0, committed=0)
    (tmp_path / "offsets" / "0").write_text("v2\n{}")
    with pytest.raises(UsageError, match="version 'v2'"):
        read_checkpoint(str(tmp_path))
    (tmp_path / "offsets" / "0").write_text("v1\nnothing")
    with pytest.raises(UsageError, match="entry 0 of Spark's offset log cannot be read"):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize("sources", [[ours({"0": 5})], [ours({"0": 5}), "-", '{"logOffset":3}'], []])
def test_the_digest_is_the_one_that_the_sink_writes_into_its_marker(sources: list[str]) -> None:
    text = entry(*sources)
    theirs = parse_planned_batch(QUERY, "run", 4, text)
    mine = parse_batch(4, text)
    assert (mine.digest, mine.planned_ms, mine.sources) == (theirs.digest, theirs.planned_ms, theirs.sources)


# What was asked for.


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("a:0=15", Wish("a", 0, 15)),
        ("a=earliest", Wish("a", None, "earliest")),
        ("a:1 = Latest", Wish("a", 1, "latest")),
    ],
)
def test_wishes(text: str, wish: Wish) -> None:
    assert parse_wish(text) == wish


@pytest.mark.parametrize("text", ["a", "a:0", "a:x=1", "=1", "a:0=-1", "a:0=soon", ":0=1"])
def test_what_is_no_wish(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not TOPIC:PARTITION=OFFSET; for example orders:0=1500"):
        parse_wish(text)


def standing() -> Standing:
    return Standing(Subscribed((A0, A1), IDS), {A0: 5, A1: 0}, {A0: 50, A1: 500}, {})


def test_wishes_become_offsets() -> None:
    assert resolved([Wish("a", 0, 7), Wish("a", 1, "latest")], standing()) == {A0: 7, A1: 500}
    assert resolved([Wish("a", None, "earliest")], standing()) == {A0: 5, A1: 0}


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ([Wish("b", None, 1)], "does not read b; it reads a"),
        ([Wish("a", 7, 1)], "does not read a-7"),
        ([Wish("a", 0, 4)], "a-0 has the offsets 5 to 50; 4 is outside of it"),
        ([Wish("a", 0, 51)], "51 is outside of it"),
        ([Wish("a", None, 7), Wish("a", 0, 8)], "a-0 is set twice"),
    ],
)
def test_wishes_that_cannot_be_had(wishes: list[Wish], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolved(wishes, standing())


# What may be changed.


def change(
    found: Checkpoint, said: Marker | None, *, by_kafka: bool = True, ids: Mapping[str, str] | None = None
) -> Any:
    return checkpoint_change(found, {A0: 12}, ids or IDS, said, decided_by_kafka=by_kafka)


@pytest.mark.parametrize("source", [ours, built_in])
@pytest.mark.parametrize("said", [marker(3), marker(2), None])
def test_a_finished_checkpoint_is_written_anew(tmp_path: Path, source: Any, said: Marker | None) -> None:
    before = read_checkpoint(str(write(tmp_path, planned=3, committed=3, source=source)))
    made = change(before, said)
    assert made.drop is None
    assert [str(move) for move in made.moves] == [
        "a-0  40 → 12: 28 offsets are read again, and what they give is written a second time"
    ]
    kept = apply_change(tmp_path, made)
    after = read_checkpoint(str(tmp_path))
    assert after.next_start() == {A0: 12, A1: 400}
    assert after.unfinished is None
    assert (tmp_path / "offsets" / "3").read_text() == entry(source({"0": 12, "1": 400}))
    assert not (tmp_path / "offsets" / ".3.crc").exists()
    assert (tmp_path / "offsets" / ".2.crc").exists()
    assert (kept / "3").read_text() == entry(source({"0": 40, "1": 400}))
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir() if not path.name.startswith(".")) == list(
        "0123"
    )


def test_a_planned_batch_that_never_will_be_committed_is_removed(tmp_path: Path) -> None:
    before = read_checkpoint(str(write(tmp_path, planned=4, committed=3)))
    made = change(before, marker(3))
    assert made.drop is not None
    kept = apply_change(tmp_path, made)
    after = read_checkpoint(str(tmp_path))
    assert fingerprint(tmp_path) == (3, 3)
    assert after.next_start() == {A0: 12, A1: 400}
    assert not (tmp_path / "offsets" / ".4.crc").exists()
    assert sorted(path.name for path in kept.iterdir()) == ["3", "4"]


@pytest.mark.parametrize(
    ("planned", "committed", "said", "by_kafka", "reason"),
    [
        (-1, -1, None, True, "no micro-batch is planned yet.*start = { offsets"),
        (0, -1, None, True, "the first micro-batch is planned and not committed"),
        (4, 3, marker(4), True, r"batch 4 is in the output, but Spark has not noted it yet.*run FILE --once"),
        (4, 3, None, True, "Kafka has no marker"),
        (4, 3, None, False, "without an exactly-once Kafka sink"),
        (3, 3, marker(5), True, "Kafka has batch 5, but the checkpoint knows only batch 3"),
        (3, 3, marker(3, "another"), True, "last used by query another"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, planned: int, committed: int, said: Marker | None, by_kafka: bool, reason: str
) -> None:
    found = read_checkpoint(str(write(tmp_path, planned, committed)))
    with pytest.raises(UsageError, match=reason):
        change(found, said, by_kafka=by_kafka)


def test_state_keeps_a_planned_batch(tmp_path: Path) -> None:
    write(tmp_path, planned=4, committed=3)
    (tmp_path / "state").mkdir()
    with pytest.raises(UsageError, match="keeps state"):
        change(read_checkpoint(str(tmp_path)), marker(3))
    (tmp_path / "commits" / "4").write_text("v1\n{}")
    assert change(read_checkpoint(str(tmp_path)), marker(4)).entry.batch_id == 4


def test_topics_that_are_new_or_made_anew_are_refused(tmp_path: Path) -> None:
    found = read_checkpoint(str(write(tmp_path, planned=3, committed=3)))
    with pytest.raises(UsageError, match="a-2 is new to the query"):
        checkpoint_change(found, {TopicPartition("a", 2): 1}, IDS, None, decided_by_kafka=True)
    with pytest.raises(UsageError, match="topic a was deleted and made anew"):
        change(found, None, ids={"a": "other"})


def test_a_checkpoint_that_goes_on_meanwhile_is_left_alone(tmp_path: Path) -> None:
    made = change(read_checkpoint(str(write(tmp_path, planned=3, committed=3))), marker(3))
    write(tmp_path, planned=4, committed=3)
    with pytest.raises(UsageError, match="has changed meanwhile"):
        apply_change(tmp_path, made)
    assert read_checkpoint(str(tmp_path)).next_start() == {A0: 40, A1: 400}
