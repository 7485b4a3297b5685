"""A standalone Spark cluster on this machine whose workers have addresses of their own.

Spark does not start a speculative copy of a task on the host that runs it already, so workers that share one address,
as those of `local-cluster` do, never show speculation.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from sparkonce.deadline import Deadline, wait_until
from sparkonce.java import spark_java_home

START_SECONDS = 120
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master with so many workers of one core each."""
    with ExitStack() as processes:
        ports = ["--port", "0", "--webui-port", "0"]
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports]
        (address,) = processes.enter_context(_daemon(master, folder / "master.log", r"Starting Spark master at (\S+)"))
        for number in range(workers):
            place = ["--host", f"127.0.0.{number + 2}", *ports, "--work-dir", str(folder / f"worker-{number}")]
            worker = ["org.apache.spark.deploy.worker.Worker", *place, "--cores", "1", "--memory", "1g", address]
            log = folder / f"worker-{number}.log"
            processes.enter_context(_daemon(worker, log, r"Successfully registered with (master)"))
        yield address


@contextmanager
def _daemon(command: list[str], log: Path, ready: str) -> Iterator[list[str]]:
    """Runs a daemon of Spark; gives what its log says when it is ready."""
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home()), "SPARK_DAEMON_MEMORY": "256m"}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(SPARK_CLASS), *command], env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            started = wait_until(lambda: bool(re.findall(ready, log.read_text())), Deadline.after(START_SECONDS))
            assert started, log.read_text()
            yield re.findall(ready, log.read_text())[:1]
        finally:
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
