"""All or nothing across partitions, as a reader of committed records sees it that never stops polling."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from tests.cluster.judge import WAYS, Verdict, judge, run, start, write_input
from tests.cluster.pipeline import BATCH_HEADER, Job
from tests.conftest import TopicFactory

PARTITIONS = 6
ROWS = 20_000
BATCHES = 5
KILLED = (1, 3)
"""The micro-batches at whose first visible record everything of ours is killed."""
WAIT_SECONDS = 180


class Watcher:
    """Polls all partitions in a thread: which records of which batch were seen."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.seen: dict[int, list[str]] = defaultdict(list)
        self._topic = topic
        self._at_sight: dict[int, subprocess.Popen[str]] = {}
        self._over = threading.Event()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "watcher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,  # so that it kills early
            }
        )
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Watcher:
        self._consumer.assign([ConfluentPartition(self._topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
        self._consumer.close()

    def kill_at_sight(self, batch: int, pipeline: subprocess.Popen[str]) -> None:
        """As soon as one record of the batch is visible, every process of the pipeline is killed."""
        self._at_sight[batch] = pipeline

    def _poll(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(5_000, timeout=0.05):
                assert message.error() is None, message.error()
                batch = int(dict(message.headers())[BATCH_HEADER])
                if batch in self._at_sight:
                    os.killpg(self._at_sight.pop(batch).pid, signal.SIGKILL)
                self.seen[batch].append(message.value().decode())


@WAYS
@pytest.mark.timeout(900)
def test_a_batch_of_which_one_record_is_seen_is_complete(
    one_stage: bool, broker: DevBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(broker, partitions=PARTITIONS)
    expected = write_input(tmp_path / "in", files=BATCHES, rows=ROWS)
    folders, options = (str(tmp_path / "in"), str(tmp_path / "checkpoint")), {"one_stage": one_stage}
    job = Job(broker.bootstrap_servers, name, *folders, options=options)
    with Watcher(broker.bootstrap_servers, name) as watcher:
        for batch in KILLED:
            with start(job, own_group=True) as pipeline:
                watcher.kill_at_sight(batch, pipeline)
                output, _ = pipeline.communicate(timeout=WAIT_SECONDS)
            assert pipeline.returncode == -signal.SIGKILL, output
            # Nobody of ours is alive, and the rest of the batch becomes visible all the same.
            assert wait_until(lambda: len(watcher.seen[batch]) >= ROWS, Deadline.after(WAIT_SECONDS))  # noqa: B023
        code, output = run(job)
        assert code == 0, output
        assert wait_until(lambda: len(watcher.seen[BATCHES - 1]) >= ROWS, Deadline.after(WAIT_SECONDS))
    assert {batch: sorted(ids) for batch, ids in watcher.seen.items()} == {
        batch: expected[batch * ROWS : (batch + 1) * ROWS] for batch in range(BATCHES)
    }
    assert judge(broker.bootstrap_servers, name, PARTITIONS, expected) == Verdict([], [], 0, len(expected))
