"""The rules of the runner, with stores that do as they are told: what is committed, what is rolled back, and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from sparkonce.commit import (
    Branch,
    BranchWriter,
    Decision,
    FileDecisions,
    Handle,
    LocalFolder,
    Participant,
    PendingCommits,
    Run,
    State,
    TwoPhaseCommit,
    query_digest,
)
from sparkonce.commit.states import TRANSITIONS, Step, after
from sparkonce.commit.sweep import fates
from sparkonce.errors import FencedError, InDoubtError, RetriableError, UsageError

QUERY = query_digest("q")


class Scripted(Participant):
    """Remembers what is prepared and what was asked; fails as often as it is told to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.prepared: list[Branch] = []
        self.steps: list[tuple[str, int]] = []
        self.failures: list[Exception] = []

    @property
    def name(self) -> str:
        return self._name

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        raise NotImplementedError

    def commit(self, handles: Sequence[Handle]) -> None:
        self._finish("commit", handles)

    def abort(self, handles: Sequence[Handle]) -> None:
        self._finish("abort", handles)

    def in_doubt(self, query: str) -> list[Handle]:
        return [Handle(branch) for branch in self.prepared if branch.query == query]

    def prepare(self, run: Run, partition: int = 0, attempt: int = 0) -> Handle:
        self.prepared.append(run.branch(self.name, partition, attempt))
        return Handle(self.prepared[-1])

    def _finish(self, step: str, handles: Sequence[Handle]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.steps += [(step, handle.branch.epoch) for handle in handles]
        self.prepared = [branch for branch in self.prepared if Handle(branch) not in handles]


@pytest.fixture
def sinks() -> tuple[Scripted, Scripted]:
    return Scripted("first"), Scripted("second")


@pytest.fixture
def commit(tmp_path: Path, sinks: tuple[Scripted, Scripted]) -> TwoPhaseCommit:
    made = TwoPhaseCommit("q", sinks, FileDecisions(LocalFolder(tmp_path), "q"), patience_ms=0)
    made.recover()
    return made


def test_fate_of_every_leftover() -> None:
    last, running = Decision(QUERY, 5, 50), Run(QUERY, 6, 61)
    found = {
        (batch_id, epoch): Handle(Run(QUERY, batch_id, epoch).branch("sink", 0, 0))
        for batch_id, epoch in product((4, 5, 6, 7), (40, 50, 60, 61))
    }
    foreign = Handle(Run(query_digest("other"), 5, 50).branch("sink", 0, 0))
    result = fates([*found.values(), foreign], QUERY, last, running)
    assert result.commit == (found[5, 50],)
    left = {handle for handle in found.values() if handle not in (*result.commit, *result.abort)}
    assert left == {found[6, 61]}
    assert foreign not in (*result.commit, *result.abort)


def test_before_the_first_decision_everything_is_rolled_back() -> None:
    handle = Handle(Run(QUERY, 0, 1).branch("sink", 0, 0))
    assert fates([handle], QUERY, None, None).abort == (handle,)


def test_two_attempts_of_the_decided_run_are_not_touched() -> None:
    run = Run(QUERY, 5, 50)
    handles = [Handle(run.branch("sink", 0, attempt)) for attempt in (1, 2)]
    with pytest.raises(InDoubtError, match="Neither is touched"):
        fates(handles, QUERY, Decision(QUERY, 5, 50), None)


def test_one_failure_does_not_stop_the_others_and_is_retried(
    commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]
) -> None:
    first, second = sinks
    run = commit.begin(0)
    commit.decide([first.prepare(run), second.prepare(run)])
    first.failures = [RetriableError("down")]
    with pytest.raises(RetriableError, match="down"):
        commit.commit()
    assert (first.steps, second.steps) == ([], [("commit", run.epoch)])
    assert commit.state is State.DECIDED
    commit.begin(1)  # brings the commit back before anything else
    assert first.steps == [("commit", run.epoch)]
    assert second.steps == [("commit", run.epoch)]


def test_no_run_begins_while_something_is_not_committed(
    commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]
) -> None:
    run = commit.begin(0)
    commit.decide([sinks[0].prepare(run)])
    sinks[0].failures = [UsageError("no permission")] * 3
    for _ in range(2):
        with pytest.raises(UsageError, match="no permission"):
            commit.begin(1)


def test_abort_rolls_back_what_only_the_stores_know(commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]) -> None:
    run = commit.begin(0)
    sinks[1].prepare(run)
    commit.abort()
    assert sinks[1].steps == [("abort", run.epoch)]
    assert commit.state is State.IDLE


def test_abort_does_not_hide_the_reason_when_a_store_is_down(
    commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]
) -> None:
    sinks[0].prepare(commit.begin(0))
    sinks[0].failures = [RetriableError("down")]
    commit.abort()
    assert sinks[0].prepared
    commit.begin(0)
    assert not sinks[0].prepared


def test_handles_of_another_run_are_refused(commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]) -> None:
    old = commit.begin(0)
    handle = sinks[0].prepare(old)
    commit.abort()
    commit.begin(0)
    with pytest.raises(RuntimeError, match="is not a branch of run"):
        commit.decide([handle])


def test_replaced_driver_stops_for_good(tmp_path: Path, sinks: tuple[Scripted, Scripted]) -> None:
    drivers = [TwoPhaseCommit("q", sinks, FileDecisions(LocalFolder(tmp_path), "q"), patience_ms=0) for _ in range(2)]
    for driver in drivers:
        driver.recover()
    drivers[0].begin(0)
    with pytest.raises(FencedError):
        drivers[0].decide([])
    assert drivers[0].state is State.FENCED
    for again in (lambda: drivers[0].begin(0), drivers[0].abort, drivers[0].recover):
        with pytest.raises(FencedError, match="taken over"):
            again()


class LateError(FileDecisions):
    """Records, and then fails in a way that nobody thought of."""

    def record(self, decision: Decision) -> None:
        super().record(decision)
        raise ConnectionError("the answer was lost")


def test_unknown_error_of_the_decision_is_doubt(tmp_path: Path, sinks: tuple[Scripted, Scripted]) -> None:
    commit = TwoPhaseCommit("q", sinks, LateError(LocalFolder(tmp_path), "q"), patience_ms=0)
    commit.recover()
    run = commit.begin(0)
    handle = sinks[0].prepare(run)
    with pytest.raises(ConnectionError):
        commit.decide([handle])
    assert commit.state is State.IN_DOUBT
    for forbidden in (commit.abort, commit.sweep, lambda: commit.begin(0), lambda: commit.is_decided(0)):
        with pytest.raises(RuntimeError, match="IN_DOUBT"):
            forbidden()
    assert sinks[0].prepared
    commit.recover()
    assert commit.is_decided(0)
    assert sinks[0].steps == [("commit", run.epoch)]


def test_batch_is_not_skipped_before_it_is_committed(commit: TwoPhaseCommit, sinks: tuple[Scripted, Scripted]) -> None:
    run = commit.begin(0)
    commit.decide([sinks[0].prepare(run)])
    sinks[0].failures = [UsageError("no permission")]
    with pytest.raises(UsageError, match="no permission"):
        commit.is_decided(0)
    assert commit.is_decided(0)
    assert not sinks[0].prepared


def test_nothing_is_done_before_the_query_is_claimed(tmp_path: Path, sinks: tuple[Scripted, Scripted]) -> None:
    commit = TwoPhaseCommit("q", sinks, FileDecisions(LocalFolder(tmp_path), "q"))
    for step in (commit.sweep, lambda: commit.is_decided(0), lambda: commit.begin(0)):
        with pytest.raises(RuntimeError, match="UNCLAIMED"):
            step()


def test_recovery_that_failed_must_be_repeated(tmp_path: Path, sinks: tuple[Scripted, Scripted]) -> None:
    first, second = (
        TwoPhaseCommit("q", sinks, FileDecisions(LocalFolder(tmp_path), "q"), patience_ms=0) for _ in range(2)
    )
    first.recover()
    first.decide([sinks[0].prepare(first.begin(0))])
    sinks[0].failures = [RetriableError("down")]
    with pytest.raises(RetriableError, match="down"):
        second.recover()
    with pytest.raises(RuntimeError, match="recover first"):
        second.is_decided(0)
    second.recover()
    assert second.is_decided(0)
    assert not sinks[0].prepared


def test_two_sinks_need_two_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two sinks of one query are called 'same'"):
        TwoPhaseCommit("q", [Scripted("same"), Scripted("same")], FileDecisions(LocalFolder(tmp_path), "q"))


def test_notice_commits_everything_at_or_below_in_order() -> None:
    sink, pending = Scripted("sink"), PendingCommits()
    for batch_id in (2, 1, 3):
        pending.add(batch_id, sink, [Handle(Run(QUERY, batch_id, batch_id).branch("sink", 0, 0))])
    pending.notify(2)
    assert sink.steps == [("commit", 1), ("commit", 2)]
    pending.notify(3)
    assert not pending


def test_failure_keeps_the_later_batches_of_its_sink_waiting() -> None:
    (first, second), pending = (Scripted("first"), Scripted("second")), PendingCommits()
    for batch_id, sink in product((1, 2), (first, second)):
        pending.add(batch_id, sink, [Handle(Run(QUERY, batch_id, batch_id).branch(sink.name, 0, 0))])
    first.failures = [UsageError("one"), UsageError("two")]
    with pytest.raises(UsageError, match="one"):
        pending.notify(2)
    assert first.steps == []
    assert second.steps == [("commit", 1), ("commit", 2)]
    with pytest.raises(UsageError, match="two"):
        pending.notify(2)
    pending.notify(2)
    assert first.steps == [("commit", 1), ("commit", 2)]


def test_notice_for_an_unknown_batch_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    PendingCommits().notify(7)
    assert "batch 7 is decided, but nothing is pending for it" in caplog.text


def test_fenced_is_final_and_doubt_leads_only_to_a_claim() -> None:
    assert {step for state, step in TRANSITIONS if state is State.FENCED} == {Step.LOSE_CLAIM}
    assert {step for state, step in TRANSITIONS if state is State.IN_DOUBT} == {Step.CLAIM, Step.LOSE_CLAIM}
    with pytest.raises(RuntimeError, match="ABORT is not possible in the state IN_DOUBT"):
        after(State.IN_DOUBT, Step.ABORT)
