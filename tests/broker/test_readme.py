"""The README's Python example, run as it stands but for the address, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, NewTopic, create_topics
from tests.cluster.judge import read_committed
from tests.quick_spark import quick_environment

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.timeout(600)
def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    with DevBroker(jvm_options=QUICK_JVM) as broker:
        servers = broker.bootstrap_servers
        with Client(ConnectionOptions(bootstrap_servers=servers)) as client:
            create_topics(client, [NewTopic("orders", partitions=2), NewTopic("big-orders", partitions=2)])
        producer: Any = Producer({"bootstrap.servers": servers})
        for amount in range(0, 1_000, 100):
            producer.produce("orders", f'{{"amount": {amount}}}', f"key-{amount}")
        assert producer.flush(60) == 0
        answer = subprocess.run(
            [sys.executable, "-c", example.replace("localhost:19092", servers)],
            cwd=tmp_path,
            env=quick_environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        found = sorted(value for _, _, value in read_committed(servers, "big-orders", 2))
    assert found == [f'{{"amount": {amount}}}' for amount in range(500, 1_000, 100)]
