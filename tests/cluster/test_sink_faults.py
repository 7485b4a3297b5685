"""What goes wrong around a running query: expiry, a second driver, lost executors, state that must not be lost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from demo.judge import count_transactions

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client
from tests.cluster.judge import WAYS, Verdict, judge, read_committed, run, start, write_input
from tests.cluster.pipeline import STANDS_STILL, Job, written
from tests.cluster.standalone import standalone_cluster
from tests.conftest import TopicFactory

pytestmark = pytest.mark.timeout(900)
PARTITIONS = 3
ROWS = 400
RUN_SECONDS = 180


def job_of(broker: DevBroker, topic: str, folder: Path, **changes: object) -> Job:
    return Job(broker.bootstrap_servers, topic, str(folder / "in"), str(folder / "checkpoint"), **changes)  # type: ignore[arg-type]


@WAYS
def test_one_transaction_a_batch_open_only_while_sending(
    one_stage: bool, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker, partitions=PARTITIONS)
    expected = write_input(tmp_path / "in", files=4, rows=ROWS)
    code, output = run(job_of(broker, name, tmp_path, options={"one_stage": one_stage}))
    assert code == 0, output
    assert output.count("is sent in one stage") == (4 if one_stage else 0)
    assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))
    assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (4, 0)
    open_seconds = [float(found) for found in re.findall(r"open_seconds=([\d.]+)", output)]
    assert len(open_seconds) == 4
    assert all(0 < seconds < 30 for seconds in open_seconds)


@pytest.mark.parametrize("transaction_version", [pytest.param(1, marks=pytest.mark.chaos), 2])
def test_an_expired_transaction_runs_again_with_more_time(
    transaction_version: Literal[1, 2], topic: TopicFactory, tmp_path: Path
) -> None:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with DevBroker(transaction_version=transaction_version, properties=properties, jvm_options=QUICK_JVM) as broker:
        name = topic(broker, partitions=PARTITIONS)
        expected = write_input(tmp_path / "in", files=2, rows=ROWS)
        options = {"transaction_timeout_ms": 5_000}
        code, output = run(job_of(broker, name, tmp_path, fault="slow", options=options))
        assert code == 0, output
        assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))
        assert re.search(r"batch 0 .*attempts=[2-9]", output), output
        assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (2, 1)


@pytest.mark.chaos
def test_an_expiry_past_the_brokers_maximum_names_the_remedies(topic: TopicFactory, tmp_path: Path) -> None:
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transaction.max.timeout.ms": "5000",
    }
    with DevBroker(properties=properties, jvm_options=QUICK_JVM) as broker:
        name = topic(broker, partitions=PARTITIONS)
        write_input(tmp_path / "in", files=1, rows=ROWS)
        code, output = run(job_of(broker, name, tmp_path, fault="slow"))
        assert code != 0
        assert "expired after 5,000 ms" in output
        assert "maxOffsetsPerTrigger" in output
        assert "transaction.max.timeout.ms" in output
        assert judge(broker.bootstrap_servers, name, PARTITIONS, []) == Verdict([], [], 0, 0)


@pytest.mark.chaos
@pytest.mark.parametrize("protocol", ["broker", "broker_tv1"])
def test_a_driver_that_was_replaced_writes_nothing_and_says_who_took_over(
    protocol: str, request: pytest.FixtureRequest, topic: TopicFactory, tmp_path: Path
) -> None:
    broker: DevBroker = request.getfixturevalue(protocol)
    name = topic(broker, partitions=PARTITIONS)
    expected = write_input(tmp_path / "in", files=3, rows=ROWS)
    zombie = start(job_of(broker, name, tmp_path, fault="sleep-before-end", fault_batch=1))
    try:
        process = psutil.Process(zombie.pid)
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, Deadline.after(RUN_SECONDS))
        code, output = run(job_of(broker, name, tmp_path))
        assert code == 0, output
        os.kill(zombie.pid, signal.SIGCONT)
        said, _ = zombie.communicate(timeout=RUN_SECONDS)
    finally:
        zombie.kill()
    assert zombie.returncode != 0
    assert "FencedError" in said
    assert re.search(r"taken over by process \d+ on \S+, query", said), said
    assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))


@pytest.mark.parametrize("query", [pytest.param("deduplicated", marks=pytest.mark.chaos), "counted"])
def test_state_is_right_after_a_crash(query: str, broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> None:
    """The driver dies between the commit in Kafka and Spark's. Every file holds the same ids: only the first may come
    through, and counts grow by file.
    """
    name, folder = topic(broker, partitions=PARTITIONS), tmp_path
    ids = write_input(folder / "in", files=1, rows=ROWS)
    for copy in range(1, 4):
        path = folder / "in" / f"{copy:04d}.csv"
        path.write_text((folder / "in" / "0000.csv").read_text())
        os.utime(path, (path.stat().st_mtime + copy, path.stat().st_mtime + copy))
    code, _ = run(job_of(broker, name, folder, query=query, fault="end-answered", fault_batch=1))
    assert code == -signal.SIGKILL
    code, output = run(job_of(broker, name, folder, query=query))
    assert code == 0, output
    # Tasks are better off where their state is, and are not made to start together elsewhere.
    assert "in one stage" not in output
    if query == "deduplicated":
        # The query's own shuffle does not keep the order.
        found = judge(broker.bootstrap_servers, name, PARTITIONS, ids)
        assert (found.missing, found.doubled, found.found) == ([], [], len(ids))
    else:
        of_key = [
            int(value) for _, key, value in read_committed(broker.bootstrap_servers, name, PARTITIONS) if key == b"k1"
        ]
        once = of_key[0]
        assert of_key == [once, 2 * once, 3 * once, 4 * once]


def executors(pipeline: subprocess.Popen[str]) -> list[psutil.Process]:
    """The executor processes of a pipeline on a local cluster."""
    return descendants(psutil.Process(pipeline.pid), "CoarseGrainedExecutorBackend")


def python_workers(pipeline: subprocess.Popen[str]) -> list[psutil.Process]:
    """The Python processes that run the tasks of the executors."""
    return descendants(psutil.Process(pipeline.pid), "CoarseGrainedExecutorBackend", "pyspark.daemon")


def descendants(process: psutil.Process, *words: str) -> list[psutil.Process]:
    """Processes below this one with the first word in their command, below them those with the second, and so on."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It ended meanwhile.
            if words[0] in " ".join(child.cmdline()):
                found += descendants(child, *words[1:]) if words[1:] else [child]
    return found


@contextlib.contextmanager
def running(job: Job) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The pipeline and what it has said so far; when the block is left it has come to its end."""
    lines: list[str] = []
    with start(job) as pipeline:
        reader = threading.Thread(target=lambda: lines.extend(pipeline.stdout or ()), daemon=True)
        reader.start()
        try:
            yield pipeline, lines
            pipeline.wait(RUN_SECONDS)
        finally:
            pipeline.kill()
        reader.join(30)


@contextlib.contextmanager
def in_the_middle_of_sending(broker: DevBroker, topic: str, said: list[str]) -> Iterator[None]:
    """The broker stands still once the first records are in, so that the tasks have more to send."""
    with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
        assert wait_until(lambda: written(client, topic) > 0, Deadline.after(RUN_SECONDS)), "".join(said)
        broker.pause(0)
        yield
        broker.resume(0)


TWO_EXECUTORS: dict[str, Any] = {
    "master": "local-cluster[2,1,1024]",
    "settings": {"spark.executor.memory": "512m"},
}
MANY_REQUESTS = {"batch_bytes": 5_000, "compression": "none"}


@pytest.mark.chaos
@WAYS
@pytest.mark.parametrize(
    ("victims", "query"),
    [(executors, "plain"), (python_workers, "plain"), (executors, "nondeterministic")],
    ids=["executor", "python-workers", "executor-nondeterministic"],
)
def test_tasks_killed_while_they_send(
    victims: Callable[[subprocess.Popen[str]], list[psutil.Process]],
    query: str,
    one_stage: bool,
    topic: TopicFactory,
    tmp_path: Path,
) -> None:
    with DevBroker(jvm_options=QUICK_JVM) as broker:
        name = topic(broker, partitions=PARTITIONS)
        expected = write_input(tmp_path / "in", files=2, rows=60_000)
        options = {**MANY_REQUESTS, "one_stage": one_stage}
        job = job_of(broker, name, tmp_path, query=query, options=options, **TWO_EXECUTORS)
        with running(job) as (pipeline, said), in_the_middle_of_sending(broker, name, said):
            for victim in victims(pipeline)[:1]:
                victim.kill()
        assert pipeline.returncode == 0, "".join(said)
        assert ("is sent in one stage" in "".join(said)) is one_stage
        found = judge(broker.bootstrap_servers, name, PARTITIONS, expected)
        assert (found.missing, found.doubled, found.found) == ([], [], len(expected))
        assert found.out_of_order == 0 or query == "nondeterministic"


@pytest.mark.chaos
@pytest.mark.parametrize("are_granted", [True, False], ids=["granted", "not-granted"])
def test_lost_executors_and_rows_that_are_others_when_computed_again(
    are_granted: bool, topic: TopicFactory, tmp_path: Path
) -> None:
    """The sending task is lost with all shuffled data, so Spark runs both stages again. Kafka takes the first batch of
    the second attempt for a repetition. Without permissions nobody would notice that it is another one.
    """
    with DevBroker(jvm_options=QUICK_JVM) as broker:
        name = topic(broker)
        expected = write_input(tmp_path / "in", files=1, rows=60_000)
        job = job_of(
            broker,
            name,
            tmp_path,
            query="rotated",
            fault="stand-still" if are_granted else "stand-still-without-grants",
            options={"batch_bytes": 200_000, "compression": "none", "one_stage": False},
            **TWO_EXECUTORS,
        )
        with running(job) as (pipeline, said):
            assert wait_until((tmp_path / STANDS_STILL).exists, Deadline.after(RUN_SECONDS)), "".join(said)
            with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
                assert wait_until(lambda: written(client, name) > 0, Deadline.after(RUN_SECONDS)), "".join(said)
            for executor in executors(pipeline):
                executor.kill()
        assert pipeline.returncode == 0, "".join(said)
        found = judge(broker.bootstrap_servers, name, 1, expected)
        assert found.found == len(expected)
        assert (found.missing == [], found.doubled == []) == (are_granted, are_granted)
        assert count_transactions(broker.bootstrap_servers, name, 1) == (1, 1 if are_granted else 0)


@pytest.mark.chaos
def test_a_speculative_copy_of_a_sending_task_sends_nothing(topic: TopicFactory, tmp_path: Path) -> None:
    """One of two executors stands still while it sends, until Spark has started a copy of its task on the other."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
    }
    with DevBroker(jvm_options=QUICK_JVM) as broker, standalone_cluster(tmp_path) as master:
        name = topic(broker, partitions=PARTITIONS)
        expected = write_input(tmp_path / "in", files=2, rows=60_000)
        # Spark makes no copies of tasks that run together.
        options = {**MANY_REQUESTS, "one_stage": False}
        job = job_of(broker, name, tmp_path, master=master, settings=speculation, options=options)
        with running(job) as (pipeline, said):
            with in_the_middle_of_sending(broker, name, said):
                stopped = descendants(psutil.Process(), "127.0.0.2", "pyspark.daemon")
                for worker in stopped:
                    worker.suspend()
            try:
                copied = wait_until(lambda: "waits: attempt" in "".join(said), Deadline.after(RUN_SECONDS))
            finally:
                for worker in stopped:
                    worker.resume()
        output = "".join(said)
        assert copied, output
        assert pipeline.returncode == 0, output
        assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))
        # The copy was harmless: no transaction had to be aborted for it.
        assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (2, 0)
