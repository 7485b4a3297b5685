"""The commands around a pipeline file, as a user types them, on a real broker."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import DevBroker
from sparkonce.fetch.checkpoint import read_checkpoint
from tests.broker.fetch_samples import producer_of
from tests.broker.wire_samples import values_in
from tests.cluster.standalone import standalone_cluster
from tests.conftest import TopicFactory
from tests.quick_spark import quick_environment

PARTITIONS = 3
SECONDS = 180
ID = "get_json_object(string(value), '$.id')"


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "sparkonce.cli", *map(str, words)]


def sparkonce(*words: str | Path, code: int = 0, **environment: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        command(*words),
        env=quick_environment(**environment),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr + done.stdout


def produce(broker: DevBroker, topic: str, numbers: range, pause_seconds: float = 0) -> None:
    producer = producer_of(broker)
    for number in numbers:
        value = json.dumps({"id": number, "amount": number % 200})
        producer.produce(topic, value.encode(), str(number % 7).encode(), partition=number % 7 % PARTITIONS)
        if number % 1_000 == 0:
            producer.flush(30)
            time.sleep(pause_seconds)
    producer.flush(30)


class Story:
    """A pipeline file between two topics."""

    def __init__(self, broker: DevBroker, topic: TopicFactory, folder: Path) -> None:
        self.broker = broker
        self.input, self.output = (topic(broker, partitions=PARTITIONS) for _ in range(2))
        self.file = folder / "orders.toml"

    def edit(self) -> None:
        """The three lines that `init` names."""
        text = self.file.read_text()
        text = text.replace("127.0.0.1:19092", self.broker.bootstrap_servers)
        text = text.replace("<input topic>", self.input).replace("<output topic>", self.output)
        self.file.write_text(text)

    def written(self) -> list[int]:
        return sorted(json.loads(value)["id"] for value in values_in(self.broker, self.output, PARTITIONS))


@pytest.fixture
def story(broker: DevBroker, topic: TopicFactory, tmp_path: Path) -> Story:
    return Story(broker, topic, tmp_path)


@contextmanager
def running(story: Story, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`sparkonce run` in the background, in a group of its own, and what it has said so far."""
    said: list[str] = []
    with subprocess.Popen(
        command("run", story.file, *options),
        env=quick_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        reader = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
        reader.start()
        try:
            yield process, said
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reader.join(30)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kills", [1, 20])
def test_killed_while_records_arrive(story: Story, kills: int) -> None:
    seed = int(os.environ.get("SEED", time.time_ns()))
    print(f"SEED={seed}")  # noqa: T201  pytest shows it if the test fails.
    chance = random.Random(seed)
    count = 20_000 * kills
    sparkonce("init", story.file)
    story.edit()
    arriving = threading.Thread(target=produce, args=(story.broker, story.input, range(count), 0.5))
    arriving.start()
    for _ in range(kills):
        with running(story, "--trigger", "200 milliseconds", "--max-offsets-per-trigger", "500") as (_, said):
            assert wait_until(lambda: any("batch" in line for line in said), Deadline.after(SECONDS)), said
            time.sleep(chance.uniform(0, 3))
    arriving.join()
    sparkonce("run", story.file, "--once")
    assert story.written() == list(range(count))
    assert "NOT" not in sparkonce("verify", story.file, "--id", ID)


def test_asked_to_end_it_finishes_its_micro_batch(story: Story) -> None:
    produce(story.broker, story.input, range(20_000))
    sparkonce("init", story.file)
    story.edit()
    with running(story, "--max-offsets-per-trigger", "500", "--trigger", "0 seconds") as (process, said):
        assert wait_until(lambda: any(line.startswith("batch ") for line in said), Deadline.after(SECONDS)), said
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0, "".join(said)
    assert "ended after" in "".join(said)
    assert "Traceback" not in "".join(said)
    stopped = story.written()
    assert 0 < len(stopped) < 20_000
    # Whole micro-batches, and all that were written are finished for Spark too.
    committed = read_checkpoint(str(story.file.parent / "checkpoints/orders")).committed
    progress = committed.progress() if committed else None
    assert progress is not None
    assert len(stopped) == sum(progress.end.values())


def test_errors_are_one_message(story: Story, tmp_path: Path) -> None:
    sparkonce("init", story.file)
    story.edit()
    story.file.write_text(story.file.read_text().replace(story.output, "no-such-topic"))
    produce(story.broker, story.input, range(10))
    told = sparkonce("run", story.file, "--once", code=1)
    assert re.search(r"Error: .*no-such-topic", told)
    assert not re.search(r"Traceback|Setting default log level", told)
    assert "no committed micro-batch" in sparkonce("verify", story.file, code=1)
    assert "cannot be read" in sparkonce("run", tmp_path / "nothing.toml", code=1)
    story.file.write_text(re.sub(r'sql = "[^"]*"', 'sql = "SELECT key, valu FROM source"', story.file.read_text()))
    told = sparkonce("run", story.file, "--once", code=1)
    assert re.search(r"Error: .*`valu` cannot be resolved. Did you mean .*`value`", told)
    assert not re.search(r"Traceback|Relation|QueryContext|errorClass", told)
    assert "use `sparkonce run`" in sparkonce("submit", story.file, code=1)


@pytest.mark.chaos
def test_submitted_to_a_cluster(story: Story, tmp_path: Path) -> None:
    """Two workers whose Python has no packages at all."""
    produce(story.broker, story.input, range(5_000))
    sparkonce("init", story.file)
    story.edit()
    (tmp_path / "shop.py").write_text("def big(rows):\n    return rows.select('key', 'value').where('offset >= 10')\n")
    story.file.write_text(re.sub(r'sql = "[^"]*"', 'python = "shop:big"', story.file.read_text()))
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with standalone_cluster(tmp_path) as master:
        sparkonce("submit", story.file, "--master", master, "--once", "--python", str(bare), SPARK_LOCAL_IP="127.0.0.1")
    assert len(story.written()) == 5_000 - 10 * PARTITIONS
    assert not [process for process in psutil.Process().children(recursive=True) if "Worker" in process.name()]
