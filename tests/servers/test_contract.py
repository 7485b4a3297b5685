"""The contract of a participant, over every store and mode: no row missing, none twice, no branch left behind."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparkonce.commit import DecisionStore, Handle, Participant, Run, TwoPhaseCommit, write_branch
from sparkonce.errors import AbortableError, FencedError, InDoubtError, RetriableError
from tests.servers import sqlite_participant
from tests.servers.answer_proxy import losing_answer
from tests.servers.conftest import Case
from tests.servers.decided import SendingDecisions, value_of
from tests.servers.driver import POINTS, Job, drive, in_process, prepare_and_die, run_batch, write_and_die
from tests.servers.stores import arrow_rows

BATCHES, PARTITIONS = 3, 3


class Query:
    """A query over the two sinks of a store, and drivers for it in this process."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.id = str(uuid.uuid4())
        self.case, self.store, self.folder = case, case.store, folder
        self.opened: list[DecisionStore] = []
        self.rows = tuple(tuple(arrow_rows(case.store, b, p) for p in range(PARTITIONS)) for b in range(BATCHES))

    def close(self) -> None:
        for decisions in self.opened:
            if isinstance(decisions, SendingDecisions):
                decisions.close()

    def job(self, die_at: str | None = None, die_in_batch: int = 1) -> Job:
        return Job(self.id, self.store.sinks, self.folder, self.rows, self.case.decided, die_at, die_in_batch)

    def driver(self, patience_ms: int = 5_000) -> TwoPhaseCommit:
        decisions = self.case.decided.decisions(self.id, self.rows)
        self.opened.append(decisions)
        return TwoPhaseCommit(self.id, self.store.sinks, decisions, patience_ms=patience_ms)

    def recovered(self, patience_ms: int = 5_000) -> TwoPhaseCommit:
        commit = self.driver(patience_ms)
        commit.recover()
        return commit

    def prepare_all(self, run: Run) -> list[Handle]:
        found = [self.prepare(run, sink, partition) for partition in range(PARTITIONS) for sink in self.store.sinks]
        return [handle for handle in found if handle is not None]

    def prepare(self, run: Run, sink: Participant, partition: int, attempt: int = 0) -> Handle | None:
        branch = run.branch(sink.name, partition, attempt)
        return write_branch(sink, branch, [self.rows[run.batch_id][partition]])

    def run(self, commit: TwoPhaseCommit, batch_id: int) -> None:
        run_batch(commit, self.store.sinks, batch_id, self.rows[batch_id])

    def assert_holds(self, batches: int) -> None:
        assert self.store.all_rows() == self.store.expected(batches, PARTITIONS)
        assert self.store.leftovers() == 0
        if self.case.sent is not None:
            assert sorted(self.case.sent()) == sorted(value_of(*row) for row in self.store.all_rows()[0])


@pytest.fixture
def query(case: Case, tmp_path: Path) -> Iterator[Query]:
    with closing(Query(case, tmp_path)) as made:
        yield made


def test_micro_batches_arrive_once(query: Query) -> None:
    commit = query.recovered()
    for batch_id in range(BATCHES):
        query.run(commit, batch_id)
        query.assert_holds(batch_id + 1)


@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_between_two_steps(query: Query, point: str) -> None:
    if point == "one branch committed" and not query.store.branchwise:
        point = "one sink committed"
    # In the last one: only the recovery itself can finish it.
    batch_id = 0 if point in ("started", "claimed") else BATCHES - 1
    assert in_process(drive, query.job(point, batch_id)) == -signal.SIGKILL
    assert in_process(drive, query.job()) == 0
    query.assert_holds(BATCHES)


@pytest.mark.parametrize(("first", "second"), [("one prepared", "one sink aborted"), ("decided", "one sink committed")])
def test_driver_killed_again_while_it_recovers(query: Query, first: str, second: str) -> None:
    assert in_process(drive, query.job(first, die_in_batch=0)) == -signal.SIGKILL
    assert in_process(drive, query.job(second, die_in_batch=0)) == -signal.SIGKILL
    assert in_process(drive, query.job()) == 0
    query.assert_holds(BATCHES)


def test_task_killed_after_it_prepared(query: Query) -> None:
    commit = query.recovered()
    run = commit.begin(0)
    sink = query.store.sinks[0]
    lost = run.branch(sink.name, 0, attempt=7)
    assert in_process(prepare_and_die, sink, lost, query.rows[0][0]) == -signal.SIGKILL
    # Nobody but the store knows of it; its run is lost, and the micro-batch runs again.
    assert [handle.branch for handle in sink.in_doubt(commit.query)] == [lost]
    commit.abort()
    assert query.store.leftovers() == 0
    query.run(commit, 0)
    query.assert_holds(1)


def test_task_killed_before_it_prepared(query: Query) -> None:
    commit = query.recovered()
    run = commit.begin(0)
    sink = query.store.sinks[0]
    branch = run.branch(sink.name, 0, attempt=7)
    assert in_process(write_and_die, sink, branch, query.rows[0][0]) == -signal.SIGKILL
    commit.abort()
    query.run(commit, 0)
    query.assert_holds(1)


def test_second_attempt_of_a_task(query: Query) -> None:
    commit = query.recovered()
    first = commit.begin(0)
    assert query.prepare(first, query.store.sinks[0], 0, attempt=0) is not None
    commit.abort()
    # The second attempt runs under another epoch, so the first one cannot be taken for it, whenever it prepares.
    second = commit.begin(0)
    assert second.epoch != first.epoch
    handles = query.prepare_all(second)
    late = _prepare_late(query, first)
    commit.decide(handles)
    commit.commit()
    commit.sweep()
    assert late
    query.assert_holds(1)


def test_two_attempts_in_one_run_are_never_both_committed(query: Query) -> None:
    if query.store.keeps_keys and query.store.branchwise:
        pytest.skip("the second attempt waits for the rows that the first one has locked")
    commit = query.recovered()
    run = commit.begin(0)
    sink = query.store.sinks[0]
    handles = [query.prepare(run, sink, 0, attempt) for attempt in (0, 1)]
    with pytest.raises(InDoubtError, match="two attempts"):
        commit.decide([handle for handle in handles if handle])
    commit.abort()
    query.assert_holds(0)


@pytest.mark.parametrize("decided", [True, False])
def test_server_killed_with_prepared_branches(query: Query, decided: bool) -> None:
    server = query.store.server
    if server is None:
        pytest.skip("this store has no server")
    commit = query.recovered()
    handles = query.prepare_all(commit.begin(0))
    assert query.store.leftovers() == len(handles) == 2 * PARTITIONS
    if decided:
        commit.decide(handles)
    server.restart_after_kill()
    assert query.store.leftovers() == len(handles)
    # The driver is a new one too.
    again = query.recovered()
    query.assert_holds(1 if decided else 0)
    if not decided:
        query.run(again, 0)
    query.assert_holds(1)


def test_server_down_while_committing(query: Query) -> None:
    server = query.store.server
    if server is None:
        pytest.skip("this store has no server")
    commit = query.recovered(patience_ms=300)
    commit.decide(query.prepare_all(commit.begin(0)))
    server.kill()
    try:
        with pytest.raises(RetriableError):
            commit.commit()
        with pytest.raises(RetriableError):
            commit.begin(1)  # The commit of the last one comes first.
    finally:
        server.start()
    query.run(commit, 1)
    query.assert_holds(2)


@pytest.mark.parametrize("lost", ["prepare", "commit", "abort"])
def test_connection_lost_after_the_statement_was_sent(query: Query, lost: str) -> None:
    store = query.store
    if store.server is None:
        pytest.skip("this store has no server")
    with losing_answer(store.server.port, store.words[lost]) as proxy:
        store.port = proxy.port
        commit = query.recovered()
        run = commit.begin(0)
        proxy.armed = lost == "prepare"
        if lost == "prepare":
            with pytest.raises(AbortableError):
                query.prepare_all(run)
            commit.abort()
        else:
            handles = query.prepare_all(run)
            proxy.armed = True
            if lost == "commit":
                commit.decide(handles)
                commit.commit()
            else:
                commit.abort()
                commit.sweep()
        assert proxy.lost == 1
        query.assert_holds(1 if lost == "commit" else 0)
        if lost != "commit":
            query.run(commit, 0)
    query.assert_holds(1)


@pytest.mark.parametrize("wrote_before", [False, True])
def test_zombie_prepares_after_recovery(query: Query, wrote_before: bool) -> None:
    if wrote_before and query.store.locks_while_writing:
        pytest.skip("the next run would wait for the zombie's rows, be aborted, and run again")
    replaced = query.recovered()
    old = replaced.begin(0)
    sink = query.store.sinks[0]
    zombie = sink.begin(old.branch(sink.name, 0, attempt=1), query.rows[0][0].schema)
    if wrote_before:
        zombie.write(query.rows[0][0])
    commit = query.recovered()
    query.run(commit, 0)
    try:
        if not wrote_before:
            zombie.write(query.rows[0][0])
        zombie.pre_commit()
    except AbortableError:
        zombie.discard()  # A store may notice that the branch is over.
    query.run(commit, 1)
    query.assert_holds(2)


def test_driver_that_was_replaced_decides_nothing_and_touches_nothing(query: Query) -> None:
    replaced = query.recovered()
    handles = query.prepare_all(replaced.begin(0))
    successor = query.recovered()
    assert query.store.leftovers() == 0
    ours = query.prepare_all(successor.begin(0))
    with pytest.raises(FencedError, match="taken over"):
        replaced.sweep()
    with pytest.raises(FencedError):
        replaced.decide(handles)
    assert query.store.leftovers() == len(ours)
    successor.decide(ours)
    successor.commit()
    query.assert_holds(1)


def test_what_belongs_to_others_is_left_alone(query: Query, tmp_path: Path) -> None:
    end_foreign = query.store.prepare_foreign()
    other = Query(query.case, tmp_path / "other")
    other_commit = other.recovered()
    sink = query.store.sinks[1]
    branch = other_commit.begin(2).branch(sink.name, 7, attempt=0)
    handle = write_branch(sink, branch, [arrow_rows(query.store, batch=2, partition=7)])
    before = query.store.leftovers()
    commit = query.recovered()
    query.run(commit, 0)
    commit.sweep()
    assert query.store.leftovers() == before
    assert sink.in_doubt(other_commit.query) == [handle]
    end_foreign()
    other_commit.abort()
    other.close()
    query.assert_holds(1)


def test_commit_and_abort_can_be_repeated(query: Query) -> None:
    commit = query.recovered()
    sink = query.store.sinks[0]
    handles = query.prepare_all(commit.begin(0))
    own = [handle for handle in handles if handle in sink.in_doubt(commit.query)]
    commit.decide(handles)
    commit.commit()
    sink.commit([handle for handle in own if handle.branch.sink == handles[0].branch.sink])
    query.assert_holds(1)
    gone = query.prepare_all(commit.begin(1))
    commit.abort()
    sink.abort([handle for handle in gone if handle.branch.sink == handles[0].branch.sink])
    query.assert_holds(1)


def test_task_without_rows_leaves_nothing(query: Query) -> None:
    commit = query.recovered()
    run = commit.begin(0)
    sink = query.store.sinks[0]
    assert write_branch(sink, run.branch(sink.name, 0, 0), [query.rows[0][0].slice(0, 0)]) is None
    commit.decide([])
    commit.commit()
    assert query.store.leftovers() == 0


def test_error_while_writing_leaves_nothing(query: Query) -> None:
    commit = query.recovered()
    run = commit.begin(0)
    sink = query.store.sinks[0]

    def broken() -> object:
        yield query.rows[0][0]
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_branch(sink, run.branch(sink.name, 0, 0), broken())  # type: ignore[arg-type]
    commit.abort()
    query.assert_holds(0)


def test_a_participant_of_ones_own_is_short() -> None:
    text = Path(sqlite_participant.__file__).read_text()
    assert len(text.splitlines()) < 60
    _, _, code = text.partition("\n\n")
    documented = (Path(__file__).parents[2] / "docs" / "DATABASES.md").read_text()
    assert f"```python\n{code}```" in documented


def _prepare_late(query: Query, run: Run) -> bool:
    """A zombie of an earlier run; of keys that the new run has locked it could only wait."""
    if not query.store.keeps_keys:
        sink = query.store.sinks[0]
        return write_branch(sink, run.branch(sink.name, 0, attempt=9), [query.rows[0][0]]) is not None
    return True
