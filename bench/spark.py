"""Our source and sink beside Spark's own connector: same records, same broker, same machine, in turns.

Run by `make bench`. Only the ratios mean anything. All run in the Spark of this environment. What counts is the median
micro-batch after the JVM has compiled what it will, as in a query that runs for days. The contenders of a turn run one
after the other, in every second turn the other way round; a ratio is one of the same turn. Of the turns the median
counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pyarrow as pa
from bench.codec import make_values
from bench.spark_job import BUILT_IN, Task
from tools.built_in import connector

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import encode, record_columns
from sparkonce.send import Sender, SendSettings
from sparkonce.wire import Client, NewTopic, TransactionProtocol, create_topics, init_producer

INPUT = "input"
PARTITIONS = 4
DISTINCT_VALUES = 200_000
CONTENDERS = {
    "source": ("sparkonce", BUILT_IN),
    "sink": ("exactly-once", "at-least-once", BUILT_IN),
    "copy": ("exactly-once", "at-least-once", BUILT_IN),
}
ROUNDS = {"source": (4, 1), "sink": (50, 25), "copy": (13, 5)}
"""How many reads or micro-batches, and how many of the first do not count; a copy ends with what there is to read."""
WANTED = {
    ("source", "sparkonce", BUILT_IN): 2.5,
    ("sink", "exactly-once", "at-least-once"): 0.9,
    ("sink", "exactly-once", BUILT_IN): 1.3,
    ("copy", "exactly-once", "at-least-once"): 0.9,
    ("copy", "exactly-once", BUILT_IN): 1.3,
}


def main() -> None:
    """Starts a broker, fills a topic, measures in turns, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000, help="in the topic that is read")
    parser.add_argument("--batch", type=int, default=1_500_000, help="records of a micro-batch")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--flows", default="source,sink,copy")
    parser.add_argument("--without", action="append", default=[], help="a contender that is left out")
    options = parser.parse_args()
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    worker_bytes: Counter[tuple[str, str]] = Counter()
    with (
        DevBroker() as broker,
        tempfile.TemporaryDirectory(prefix="sparkonce-bench-") as folder,
        Client(ConnectionOptions(bootstrap_servers=broker.bootstrap_servers)) as client,
    ):
        create_topics(client, [NewTopic(INPUT, partitions=PARTITIONS)])
        fill(client, options.records)
        for task in tasks(broker.bootstrap_servers, Path(folder), options):
            create_topics(client, [NewTopic(task.topic_out, partitions=PARTITIONS)])
            rate, largest = measure(task)
            print(f"  {task.topic_out:<28}{rate / 1e6:>8.2f} M records/s", flush=True)
            contender = task.flow, task.contender
            rates[contender].append(rate)
            worker_bytes[contender] = max(worker_bytes[contender], largest)
    report(rates)
    if largest := worker_bytes["source", "sparkonce"]:
        print(f"largest Python worker while {options.records:,} records were read: {largest / 1e6:.0f} MB")


def tasks(servers: str, folder: Path, options: argparse.Namespace) -> Iterator[Task]:
    """All contenders of all flows, in turns."""
    for turn in range(options.turns):
        for flow in options.flows.split(","):
            is_read = flow == "source"
            contenders = [contender for contender in CONTENDERS[flow] if contender not in options.without]
            for contender in contenders[:: -1 if turn % 2 else 1]:
                name = f"{flow}-{contender}-{turn}"
                yield Task(
                    flow=flow,
                    contender=contender,
                    servers=servers,
                    topic_in=INPUT,
                    topic_out=name,
                    folder=str(folder / name),
                    rows=options.records if is_read else options.batch,
                    rounds=ROUNDS[flow][0],
                    warm_up=ROUNDS[flow][1],
                    connector=connector() if contender == BUILT_IN else "",
                )


def fill(client: Client, count: int) -> None:
    """Writes records of 100 bytes, evenly over the partitions."""
    print(f"writing {count:,} records of 100 bytes over {PARTITIONS} partitions", flush=True)
    columns = record_columns(pa.array(make_values(DISTINCT_VALUES)), default_timestamp_ms=time.time_ns() // 1_000_000)
    batches = list(encode(columns))
    sender = Sender(client, SendSettings(init_producer(client, None, 0), None, TransactionProtocol.V1))
    for number in range(count // DISTINCT_VALUES):
        for batch in batches:
            sender.send(TopicPartition(INPUT, number % PARTITIONS), batch.data)
    sender.finish()


def measure(task: Task) -> tuple[float, int]:
    """Records a second of the median round, and the memory of the largest Python worker."""
    job = Path(__file__).with_name("spark_job.py")
    Path(task.folder).mkdir()
    with (
        Path(task.folder, "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, str(job), json.dumps(asdict(task))], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        largest = [0]
        watcher = threading.Thread(target=watch, args=(process, largest), daemon=True)
        watcher.start()
        output, _ = process.communicate()
        watcher.join()
    if process.returncode != 0:
        sys.exit(f"{task.flow} {task.contender} failed:\n{Path(task.folder, 'log').read_text()[-3000:]}")
    return statistics.median(json.loads(output.splitlines()[-1])), largest[0]


def watch(process: subprocess.Popen[str], largest: list[int]) -> None:
    """Notes the largest worker of the job until the job ends."""
    while process.poll() is None:
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                if "pyspark.daemon" in " ".join(child.cmdline()):
                    largest[0] = max(largest[0], child.memory_info().rss)
        time.sleep(0.2)


def report(rates: dict[tuple[str, str], list[float]]) -> None:
    """The median ratios, beside what is wanted and beside the ratio of each turn."""
    print()
    for (flow, ours, theirs), wanted in WANTED.items():
        turns = [a / b for a, b in zip(rates[flow, ours], rates[flow, theirs], strict=False)]
        if turns:
            ratio = statistics.median(turns)
            said = "reached" if ratio >= wanted else "NOT reached"
            each = ", ".join(f"{turn:.2f}" for turn in turns)
            print(f"{flow:<8}{ours:<14} / {theirs:<14}{ratio:>6.2f} times (wanted {wanted}: {said}; turns: {each})")


if __name__ == "__main__":
    main()
