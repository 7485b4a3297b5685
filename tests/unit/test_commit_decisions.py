"""The decision in files: one driver at a time, whole entries only, and what nobody can know is called in doubt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkonce.commit import Decision, FileDecisions, LocalFolder, is_decided, query_digest
from sparkonce.commit.decision_files import KEPT_ENTRIES
from sparkonce.errors import FencedError, InDoubtError, UsageError

QUERY = "query-1"


class BrokenFolder(LocalFolder):
    """Writes, and then says that it failed."""

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        raise OSError(5, "Input/output error")


class RepeatingFolder(LocalFolder):
    """Loses the answer of every write and asks again, as some filesystems do."""

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        super().create(name, data)


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "decisions")


def store(folder: LocalFolder) -> FileDecisions:
    return FileDecisions(folder, QUERY)


def decide(decisions: FileDecisions, batch_id: int) -> Decision:
    decision = Decision(query_digest(QUERY), batch_id, decisions.new_epoch(), "digest")
    decisions.record(decision)
    return decision


def test_last_decision_is_found_by_the_next_driver(folder: LocalFolder) -> None:
    first = store(folder)
    assert first.claim() is None
    decide(first, 0)
    last = decide(first, 1)
    assert store(folder).claim() == last


def test_claiming_again_keeps_the_decision(folder: LocalFolder) -> None:
    first = store(folder)
    first.claim()
    last = decide(first, 4)
    assert first.claim() == last
    first.require_claim()


def test_driver_that_was_replaced_is_fenced(folder: LocalFolder) -> None:
    old, new = store(folder), store(folder)
    old.claim()
    new.claim()
    new.require_claim()
    with pytest.raises(FencedError, match="taken over by process"):
        old.require_claim()
    with pytest.raises(FencedError, match="has decided nothing since"):
        decide(old, 0)
    decide(new, 0)


def test_driver_that_slept_until_its_number_was_free_again_is_fenced(folder: LocalFolder) -> None:
    old, new = store(folder), store(folder)
    old.claim()
    new.claim()
    for batch_id in range(2 * KEPT_ENTRIES):
        last = decide(new, batch_id)
    assert "2" not in folder.names()
    with pytest.raises(FencedError):
        decide(old, 99)
    new.require_claim()
    assert store(folder).claim() == last


def test_old_entries_are_removed(folder: LocalFolder) -> None:
    decisions = store(folder)
    decisions.claim()
    for batch_id in range(3 * KEPT_ENTRIES):
        decide(decisions, batch_id)
    assert len(folder.names()) == KEPT_ENTRIES


def test_epochs_are_never_repeated(folder: LocalFolder) -> None:
    seen: list[int] = []
    for batch_id in range(3):
        decisions = store(folder)
        decisions.claim()
        seen += [decisions.new_epoch(), decisions.new_epoch()]
        decide(decisions, batch_id)
        seen.append(decisions.new_epoch())
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen)


def test_write_whose_outcome_is_unknown_is_in_doubt_and_the_next_claim_tells(folder: LocalFolder) -> None:
    decisions = store(folder)
    decisions.claim()
    decisions._folder = BrokenFolder(folder.path)
    with pytest.raises(InDoubtError, match="the newest entry decides"):
        decide(decisions, 3)
    found = store(folder).claim()
    assert found is not None
    assert found.batch_id == 3


def test_write_that_was_repeated_is_recognised(folder: LocalFolder) -> None:
    decisions = store(RepeatingFolder(folder.path))
    decisions.claim()
    assert decide(decisions, 3) == store(folder).claim()


def test_nothing_is_half_written(folder: LocalFolder) -> None:
    decisions = store(folder)
    decisions.claim()
    assert folder.names() == ["1"]
    with pytest.raises(FileExistsError):
        folder.create("1", b"other")
    assert folder.names() == ["1"]
    assert b"other" not in folder.read("1")


def test_checkpoint_of_another_query_is_refused(folder: LocalFolder) -> None:
    store(folder).claim()
    with pytest.raises(UsageError, match="belong to another query"):
        FileDecisions(folder, "query-2").claim()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (json.dumps({"version": 2}).encode(), "has version 2"),
        (json.dumps({"version": 1, "decided": None}).encode(), "damaged"),
    ],
)
def test_entry_that_cannot_be_read(folder: LocalFolder, data: bytes, problem: str) -> None:
    folder.create("7", data)
    with pytest.raises(UsageError, match=problem):
        store(folder).claim()


def test_whether_a_batch_is_decided() -> None:
    last = Decision("q", 5, 1, "digest")
    assert not is_decided(None, 0)
    assert not is_decided(last, 6, "other")
    assert is_decided(last, 5, "digest")
    with pytest.raises(UsageError, match="with other offsets"):
        is_decided(last, 5, "other")
    with pytest.raises(UsageError, match="older than the output"):
        is_decided(last, 4, "digest")
