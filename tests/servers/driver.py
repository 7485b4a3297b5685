"""A driver that runs micro-batches over participants, and can be told where to be killed. Runs in processes of its own.

It does what Spark and the sink do: it looks for the first micro-batch that its own log does not have, skips what is
decided, runs the tasks, and writes its log at the end. `Killing…` put fault points around the product from outside.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sparkonce.commit import (
    Branch,
    BranchWriter,
    Decision,
    DecisionStore,
    Handle,
    Participant,
    TwoPhaseCommit,
    write_branch,
)
from tests.servers.decided import Decided, Rows

PROCESS_SECONDS = 60
POINTS = (
    "started",
    "claimed",
    "begun",
    "one written",
    "one prepared",
    "all prepared",
    "decided",
    "one branch committed",
    "one sink committed",
    "all committed",
)
"""Where a driver can be killed, in the order in which it gets there."""
# Children are forked from a process that has everything imported.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.servers.stores", __name__, "pytest"])


@dataclass(frozen=True)
class Job:
    """What a driver has to do; it is pickled for its process."""

    query_id: str
    sinks: tuple[Participant, ...]
    folder: Path
    rows: Rows
    decided: Decided
    die_at: str | None = None
    die_in_batch: int = 0
    patience_ms: int = 5_000


def drive(job: Job) -> None:
    """Runs the job to its end, in this process, or dies where it is told to."""
    progress = Progress(job)
    progress.reached("started")
    sinks = [_KillingSink(sink, progress) for sink in job.sinks]
    commit = TwoPhaseCommit(job.query_id, sinks, _KillingDecisions(job, progress), patience_ms=job.patience_ms)
    commit.recover()
    log = job.folder / "log"
    log.mkdir(exist_ok=True)
    for batch_id in range(len(list(log.iterdir())), len(job.rows)):
        progress.batch_id = batch_id
        if not commit.is_decided(batch_id):
            run_batch(commit, sinks, batch_id, job.rows[batch_id], progress)
        (log / str(batch_id)).touch()


def run_batch(
    commit: TwoPhaseCommit,
    sinks: Sequence[Participant],
    batch_id: int,
    partitions: Sequence[pa.RecordBatch],
    progress: Progress | None = None,
) -> None:
    """One micro-batch: prepare everywhere, decide, commit everywhere."""
    reached: Callable[[str], None] = progress.reached if progress else lambda _: None
    run = commit.begin(batch_id)
    reached("begun")
    handles: list[Handle] = []
    for partition, rows in enumerate(partitions):
        for sink in sinks:
            handle = write_branch(sink, run.branch(sink.name, partition, attempt=partition), [rows])
            handles += [handle] if handle else []
            reached("one prepared")
    reached("all prepared")
    commit.decide(handles)
    reached("decided")
    commit.commit()
    reached("all committed")


class Progress:
    """Where the driver is, and whether it dies there."""

    def __init__(self, job: Job) -> None:
        self.batch_id = 0
        self._job = job

    def reached(self, point: str) -> None:
        if point == self._job.die_at and self.batch_id == self._job.die_in_batch:
            os.kill(os.getpid(), signal.SIGKILL)


class _KillingDecisions(DecisionStore):
    def __init__(self, job: Job, progress: Progress) -> None:
        self._real, self._progress = job.decided.decisions(job.query_id, job.rows), progress

    def claim(self) -> Decision | None:
        found = self._real.claim()
        self._progress.reached("claimed")
        return found

    def require_claim(self) -> None:
        self._real.require_claim()

    def new_epoch(self) -> int:
        return self._real.new_epoch()

    def record(self, decision: Decision) -> None:
        self._real.record(decision)

    def abandon(self) -> None:
        self._real.abandon()


class _KillingSink(Participant):
    def __init__(self, sink: Participant, progress: Progress) -> None:
        self._sink, self._progress = sink, progress

    @property
    def name(self) -> str:
        return self._sink.name

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        return _KillingWriter(self._sink.begin(branch, schema), self._progress)

    def commit(self, handles: Sequence[Handle]) -> None:
        if self._progress._job.die_at == "one branch committed":
            self._sink.commit(handles[:1])
            self._progress.reached("one branch committed")
        self._sink.commit(handles)
        self._progress.reached("one sink committed")

    def abort(self, handles: Sequence[Handle]) -> None:
        self._sink.abort(handles)
        self._progress.reached("one sink aborted")

    def in_doubt(self, query: str) -> list[Handle]:
        return self._sink.in_doubt(query)


class _KillingWriter(BranchWriter):
    def __init__(self, writer: BranchWriter, progress: Progress) -> None:
        self._writer, self._progress = writer, progress

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        self._writer.write(arrow_batch)
        self._progress.reached("one written")

    def pre_commit(self) -> None:
        self._writer.pre_commit()

    def discard(self) -> None:
        self._writer.discard()


def prepare_and_die(sink: Participant, branch: Branch, rows: pa.RecordBatch) -> None:
    """A task whose process is killed when its branch is prepared, before anybody hears of it."""
    write_branch(sink, branch, [rows])
    os.kill(os.getpid(), signal.SIGKILL)


def write_and_die(sink: Participant, branch: Branch, rows: pa.RecordBatch) -> None:
    """A task whose process is killed before its branch is prepared."""
    sink.begin(branch, rows.schema).write(rows)
    os.kill(os.getpid(), signal.SIGKILL)


def in_process(function: Callable[..., None], *arguments: object, kill_after: float | None = None) -> int:
    """Runs a function in a process of its own; gives its exit code, below zero if it was killed."""
    process = _processes.Process(target=function, args=arguments)
    process.start()
    process.join(PROCESS_SECONDS if kill_after is None else kill_after)
    if process.exitcode is None and kill_after is not None:
        process.kill()
        process.join(PROCESS_SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{function.__name__} did not end in {PROCESS_SECONDS} s")
    return process.exitcode
