"""Starting pipelines, and judging what they wrote with a client that is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo.reader import read_topic

from tests.cluster.pipeline import Job

ROOT = Path(__file__).parents[2]
KEYS = 7
WAYS = pytest.mark.parametrize(
    "one_stage", [True, pytest.param(False, marks=pytest.mark.chaos)], ids=["one-stage", "shuffled"]
)
"""How batches get from the tasks that encode them to Kafka."""
RUN_SECONDS = 180


def write_input(folder: Path, files: int, rows: int) -> list[str]:
    """Files of increasing ids, older ones first; gives all ids."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = [f"{number:08d}" for number in range(files * rows)]
    for index in range(files):
        lines = [f"{name},k{int(name) % KEYS}" for name in ids[index * rows : (index + 1) * rows]]
        path = folder / f"{index:04d}.csv"
        path.write_text("\n".join(lines) + "\n")
        # Spark takes files by their time of change.
        moment = time.time() - 1_000 + index
        os.utime(path, (moment, moment))
    return ids


def start(job: Job, *, own_group: bool = False) -> subprocess.Popen[str]:
    """The pipeline as a process of its own; in a group of its own it can be killed with all that it started."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.pipeline", job.to_text()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=own_group,
    )


def run(job: Job) -> tuple[int, str]:
    """Runs the pipeline to its end, whichever that is."""
    with start(job) as process:
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        finally:
            process.kill()
    return process.returncode, output


@dataclass(frozen=True)
class Verdict:
    """What the judge found."""

    missing: list[str]
    doubled: list[str]
    out_of_order: int
    found: int


def judge(bootstrap_servers: str, topic: str, partitions: int, expected: list[str]) -> Verdict:
    """Compares the ids in the topic with those expected, and the order within each key."""
    counts: Counter[str] = Counter()
    order: dict[bytes, list[str]] = defaultdict(list)
    for _, key, value in read_committed(bootstrap_servers, topic, partitions):
        counts[value] += 1
        order[key].append(value)
    wanted = set(expected)
    return Verdict(
        missing=sorted(wanted - counts.keys()),
        doubled=sorted(value for value, count in counts.items() if count > 1 or value not in wanted),
        out_of_order=sum(values != sorted(values) for values in order.values()),
        found=sum(counts.values()),
    )


def read_committed(bootstrap_servers: str, topic: str, partitions: int) -> list[tuple[int, bytes, str]]:
    """Partition, key and value of every committed record, by librdkafka; those of a partition in their order."""
    messages = read_topic(bootstrap_servers, topic, partitions)
    return [(message.partition(), message.key(), message.value().decode()) for message in messages]
