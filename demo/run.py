"""`make demo`: a pipeline on a real Kafka, killed twice while it runs; then an independent client counts.

Starts a broker, writes generated orders, runs `demo/pipeline.py`, kills it with SIGKILL, starts it again, and compares
input and output.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from demo.judge import Verdict, judge
from demo.orders import PARTITIONS, TOPIC, write_orders
from sparkonce.devbroker import DevBroker
from sparkonce.errors import SparkonceError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, NewTopic, committed_offsets, create_topics

OUTPUT = "big-orders"
KILLS = 2
GIVE_UP_SECONDS = 300
INPUT = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


class Pipeline:
    """The job as a process, its own output in a file."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "demo.pipeline", bootstrap_servers, str(folder / "checkpoint")]
        self._log = folder / "pipeline.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, again if it was killed."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """As a crash would end it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def require_running(self) -> None:
        """A job that ended by itself has failed: show its last words."""
        if self._process is not None and self._process.poll() is not None:
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
            raise SparkonceError(f"the pipeline ended with code {self._process.returncode}:\n{last}")


def main() -> None:
    """Runs the whole demo and prints the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=200_000)
    parser.add_argument("--rate", type=int, default=20_000, help="orders a second")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    say("starting Apache Kafka")
    with DevBroker() as broker, tempfile.TemporaryDirectory(prefix="sparkonce-demo-") as folder:
        servers = broker.bootstrap_servers
        with Client(ConnectionOptions(bootstrap_servers=servers)) as client:
            create_topics(client, [NewTopic(name, partitions=PARTITIONS) for name in (TOPIC, OUTPUT)])
            pipeline = Pipeline(servers, Path(folder))
            try:
                run(client, pipeline, options)
            finally:
                pipeline.kill()
        say("comparing input and output with librdkafka, committed records only")
        verdict = judge(servers, PARTITIONS)
    report(verdict)
    if not verdict.is_exactly_once:
        sys.exit("the output is not exactly once; this is a bug, please report it")


def run(client: Client, pipeline: Pipeline, options: argparse.Namespace) -> None:
    """Writes orders while the pipeline runs, and kills it on the way; returns when all orders are processed."""
    say(f"writing {options.orders:,} orders, {options.rate:,} a second; starting the pipeline (seed {options.seed})")
    written = [0]
    arguments = (client.options.bootstrap_servers[0], options.orders, options.rate, written)
    threading.Thread(target=write_orders, args=arguments, daemon=True).start()
    pipeline.start()
    chance = random.Random(options.seed)
    kill_at = [options.orders * share for share in (chance.uniform(0.15, 0.4), chance.uniform(0.5, 0.8))][:KILLS]
    deadline = time.monotonic() + GIVE_UP_SECONDS
    kills = 0
    while (done := processed(client)) < options.orders:
        pipeline.require_running()
        progress(f"{written[0]:,} orders written, {done:,} processed exactly once, pipeline killed {kills} times")
        if kills < len(kill_at) and done >= kill_at[kills]:
            time.sleep(chance.uniform(0.0, 1.0))
            pipeline.kill()
            kills += 1
            end_progress(f"{done:,} orders processed: pipeline killed (SIGKILL), starting it again")
            pipeline.start()
        if time.monotonic() > deadline:
            raise SparkonceError(f"only {done:,} of {options.orders:,} orders were processed in {GIVE_UP_SECONDS} s")
        time.sleep(0.2)
    end_progress(f"all {options.orders:,} orders processed")


def processed(client: Client) -> int:
    """How many orders the pipeline has committed, by the offsets inside its transactions."""
    committed = committed_offsets(client, OUTPUT, INPUT, require_stable=False)
    return sum(offset.offset for offset in committed.values())


def report(verdict: Verdict) -> None:
    """The table at the end."""
    rows = {
        "big orders expected": verdict.expected,
        "found": verdict.found,
        "missing": verdict.missing,
        "doubled": verdict.doubled,
        "transactions committed": verdict.committed,
        "transactions aborted": verdict.aborted,
    }
    print()
    for name, value in rows.items():
        print(f"  {name:<24}{value:>12,}")
    print(f"\n  {'EXACTLY ONCE' if verdict.is_exactly_once else 'NOT exactly once'}\n")


def say(text: str) -> None:
    """One step."""
    print(f"» {text} …", flush=True)


def progress(text: str) -> None:
    """The live line; only where somebody looks."""
    if sys.stdout.isatty():
        print(f"\r  {text}    ", end="", flush=True)


def end_progress(text: str) -> None:
    """Ends the live line with something to keep."""
    start = "\r" if sys.stdout.isatty() else ""
    print(f"{start}  {text:<100}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
