"""What goes wrong around a running query: expiry, a second driver, lost executors, state that must not be lost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
import pytest
from demo.judge import count_transactions

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client
from tests.cluster.judge import Verdict, judge, read_committed, run, start, write_input
from tests.cluster.pipeline import Job, written
from tests.conftest import TopicFactory

pytestmark = pytest.mark.timeout(900)
PARTITIONS = 3
ROWS = 400
RUN_SECONDS = 180


def job_of(broker: DevBroker, topic: str, folder: Path, **changes: object) -> Job:
    return Job(broker.bootstrap_servers, topic, str(folder / "in"), str(folder / "checkpoint"), **changes)  # type: ignore[arg-type]


def test_one_transaction_a_batch_open_only_while_sending(
    broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker, partitions=PARTITIONS)
    expected = write_input(tmp_path / "in", files=4, rows=ROWS)
    code, output = run(job_of(broker, name, tmp_path))
    assert code == 0, output
    assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))
    assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (4, 0)
    open_seconds = [float(found) for found in re.findall(r"open_seconds=([\d.]+)", output)]
    assert len(open_seconds) == 4
    assert all(0 < seconds < 30 for seconds in open_seconds)


@pytest.mark.parametrize("transaction_version", [1, 2])
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
        assert re.search(r"batch 0 .*attempts=2", output), output
        assert count_transactions(broker.bootstrap_servers, name, PARTITIONS) == (2, 1)


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


@pytest.mark.parametrize("query", ["deduplicated", "counted"])
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
    return [worker for executor in executors(pipeline) for worker in descendants(executor, "pyspark.daemon")]


def descendants(process: psutil.Process, word: str) -> list[psutil.Process]:
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It ended meanwhile.
            if word in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("victims", "query"),
    [(executors, "plain"), (python_workers, "plain"), (executors, "nondeterministic")],
    ids=["executor", "python-workers", "executor-nondeterministic"],
)
def test_tasks_killed_while_they_send(
    victims: Callable[[subprocess.Popen[str]], list[psutil.Process]], query: str, topic: TopicFactory, tmp_path: Path
) -> None:
    """The broker is stopped once the first records are in, so that the tasks are killed in the middle of sending."""
    with DevBroker(jvm_options=QUICK_JVM) as broker:
        name = topic(broker, partitions=PARTITIONS)
        expected = write_input(tmp_path / "in", files=2, rows=60_000)
        settings = {"spark.executor.memory": "512m"}
        options = {"batch_bytes": 5_000, "compression": "none"}
        job = job_of(
            broker, name, tmp_path, master="local-cluster[2,1,1024]", query=query, settings=settings, options=options
        )
        with start(job) as pipeline:
            lines: list[str] = []
            reader = threading.Thread(target=lambda: lines.extend(pipeline.stdout or ()), daemon=True)
            reader.start()
            try:
                with Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client:
                    assert wait_until(lambda: written(client, name) > 0, Deadline.after(RUN_SECONDS)), "".join(lines)
                    broker.pause(0)
                    for victim in victims(pipeline)[:1]:
                        victim.kill()
                    broker.resume(0)
                pipeline.wait(RUN_SECONDS)
            finally:
                pipeline.kill()
            reader.join(30)
        output = "".join(lines)
        assert pipeline.returncode == 0, output
        found = judge(broker.bootstrap_servers, name, PARTITIONS, expected)
        assert (found.missing, found.doubled, found.found) == ([], [], len(expected))
        assert found.out_of_order == 0 or query == "nondeterministic"
