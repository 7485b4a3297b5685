"""Processes, ports, waiting and the hand-written probe, without a broker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import failures, guard, ports, processes
from sparkonce.devbroker.launch import launch_detached, launch_guarded, uninterrupted
from sparkonce.devbroker.probe import ClusterView, ask_broker
from sparkonce.devbroker.processes import ProcessIdentity, end_processes, identify, send_signal
from sparkonce.errors import UsageError

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)",
]


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def known(pid: int) -> ProcessIdentity:
    identity = identify(pid)
    assert identity is not None
    return identity


def test_waiting_ends_with_the_condition_or_the_deadline() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), Deadline.after(60))
    begun = time.monotonic()
    assert not wait_until(lambda: False, Deadline.after(0.1))
    assert time.monotonic() - begun < 30
    assert wait_until(lambda: True, Deadline.after(-1))
    assert Deadline.after(-1).expired
    assert Deadline.after(100).sooner_ms(1_000).remaining_seconds <= 1


def test_a_process_is_itself_and_nobody_else() -> None:
    with running(SLEEPER) as process:
        identity = known(process.pid)
        assert known(process.pid) == identity
        recycled = ProcessIdentity(process.pid, "another start time")
        assert not recycled.running
        assert not send_signal(recycled, signal.SIGKILL)
        assert end_processes([recycled], 0.0) == []
        assert process.poll() is None
    assert not identity.running
    assert identify(process.pid) is None


def test_an_ended_process_that_nobody_waited_for_is_not_running() -> None:
    with running(SLEEPER) as process:
        identity = known(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(lambda: not identity.running, Deadline.after(30))
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


def test_ps_and_proc_agree_on_what_runs() -> None:
    with running(SLEEPER) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert wait_until(lambda: processes.is_paused(process.pid), Deadline.after(30))
        by_ps, by_proc = processes.look_with_ps(process.pid), processes.look_in_proc(process.pid)
        assert by_ps is not None
        assert by_proc is not None
        assert by_ps.state == by_proc.state == processes.PAUSED
        assert processes.look_with_ps(process.pid) == by_ps
    assert processes.look_with_ps(process.pid) is None
    assert processes.look_in_proc(process.pid) is None


def test_ending_asks_first_and_insists_later() -> None:
    with running(SLEEPER) as polite, running(STUBBORN) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == b"ready\n"
        assert end_processes([known(polite.pid), known(stubborn.pid)], 0.5) == []
        assert (polite.wait(30), stubborn.wait(30)) == (-signal.SIGTERM, -signal.SIGKILL)


def test_a_paused_process_can_be_ended() -> None:
    with running(SLEEPER) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert end_processes([known(process.pid)], 10.0) == []
        assert process.wait(30) == -signal.SIGTERM


def test_a_guarded_command_logs_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    launched = launch_guarded([sys.executable, "-S", "-c", "print('hello')"], log, None, Deadline.after(60))
    assert wait_until(lambda: not launched.running, Deadline.after(60))
    launched.reap()
    assert log.read_text() == "hello\n"


def test_a_guarded_command_dies_with_its_guard(tmp_path: Path) -> None:
    launched = launch_guarded(SLEEPER, tmp_path / "log", None, Deadline.after(60))
    psutil.Process(launched.identity.pid).parent().kill()
    assert wait_until(lambda: not launched.running, Deadline.after(60))
    launched.reap()


@pytest.mark.parametrize("in_thread", [False, True], ids=["from the main thread", "from a thread that ended"])
def test_a_guarded_command_dies_with_a_killed_parent_and_not_with_a_thread(tmp_path: Path, in_thread: bool) -> None:
    leftover = tmp_path / "cluster" / "broker-0"
    leftover.mkdir(parents=True)
    script = f"""
import sys, threading
from pathlib import Path
from sparkonce.deadline import Deadline
from sparkonce.devbroker.launch import launch_guarded
def start():
    log, leftover = Path({str(tmp_path / "log")!r}), Path({str(leftover)!r})
    launched.append(launch_guarded({SLEEPER!r}, log, leftover, Deadline.after(60)))
launched = []
if {in_thread}:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
print(launched[0].identity.pid, flush=True)
sys.stdin.readline()
print(launched[0].running, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        command = known(int(parent.stdout.readline()))
        try:
            # Longer than the guard's own rhythm, in which it would notice a lost parent.
            assert not wait_until(lambda: not command.running, Deadline.after(3 * guard.WATCH_SECONDS))
            parent.stdin.write(b"\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == b"True\n"
            parent.kill()
            assert wait_until(lambda: not command.running, Deadline.after(30))
            assert wait_until(lambda: not leftover.parent.exists(), Deadline.after(30))
        finally:
            parent.kill()
            end_processes([command], 0.0)


def test_a_detached_command_outlives_its_parent(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from sparkonce.devbroker.launch import launch_detached
print(launch_detached({SLEEPER!r}, Path({str(tmp_path / "log")!r})).identity.pid)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    command = known(int(answer.stdout))
    assert os.getsid(command.pid) != os.getsid(0)
    assert end_processes([command], 10.0) == []


def test_a_command_that_ends_at_once_is_not_running(tmp_path: Path) -> None:
    launched = launch_detached([sys.executable, "-S", "-c", ""], tmp_path / "log")
    launched.reap()
    assert not launched.running


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    # Python's own, or that of a Spark session which an earlier test has started here.
    handler = signal.getsignal(signal.SIGINT)
    done = []

    def interrupted_work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("still here")

    with pytest.raises(KeyboardInterrupt):
        interrupted_work()
    assert done == ["still here"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_free_ports_are_different_and_free() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert all(ports.is_free(port) for port in found)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - a server of the test
def test_a_port_with_a_server_is_taken(address: str) -> None:
    with socket.create_server((address, 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_no_free_ports_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(ports, "CANDIDATES", [server.getsockname()[1]])
        with pytest.raises(UsageError, match="No 1 free ports"):
            ports.free_ports(1)


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


METADATA = (
    struct.pack(">i", 2)
    + (struct.pack(">i", 0) + text("127.0.0.1") + struct.pack(">i", 9) + text(None))
    + (struct.pack(">i", 7) + text("a.b") + struct.pack(">i", 9) + text("rack"))
    + text("the-cluster")
    + struct.pack(">ii", 0, 0)
)


@contextlib.contextmanager
def fake_broker(answer: Callable[[int, int], bytes]) -> Iterator[int]:
    """Serves one connection; `answer` gets the api key and the correlation id and returns a whole answer."""

    def serve() -> None:
        with contextlib.suppress(OSError, struct.error):
            connection, _ = server.accept()
            with connection:
                while True:
                    (size,) = struct.unpack(">i", connection.recv(4))
                    api_key, _, correlation = struct.unpack_from(">hhi", connection.recv(size))
                    connection.sendall(answer(api_key, correlation))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
    thread.join(30)


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def test_a_broker_that_answers_is_understood() -> None:
    with fake_broker(lambda key, id_: framed(id_, METADATA if key == 3 else struct.pack(">hi", 0, 0))) as port:
        assert ask_broker("127.0.0.1", port, 10) == ClusterView("the-cluster", frozenset({0, 7}))


@pytest.mark.parametrize(
    "answer",
    [
        lambda key, id_: framed(id_, METADATA if key == 3 else struct.pack(">hi", 35, 0)),
        lambda _, id_: framed(id_ + 1, struct.pack(">hi", 0, 0)),
        lambda _, id_: framed(id_, b""),
        lambda key, id_: framed(id_, METADATA[:30] if key == 3 else struct.pack(">hi", 0, 0)),
        lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda *_: b"",
    ],
    ids=["error", "other request", "empty", "cut off", "not kafka", "silence"],
)
def test_anything_else_is_no_answer(answer: Callable[[int, int], bytes]) -> None:
    with fake_broker(answer) as port:
        assert ask_broker("127.0.0.1", port, 0.5) is None


def test_nobody_there_is_no_answer() -> None:
    (port,) = ports.free_ports(1)
    assert ask_broker("127.0.0.1", port, 5) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("java.io.IOException: No space left on device", "disk full"),
        ("java.net.BindException: Address already in use", "port taken"),
        ("Failed to acquire lock on file .lock in /d. A Kafka instance is using it", "folder in use"),
        ("OpenJDK: There is insufficient memory for the Java Runtime Environment to continue.", "memory"),
        ("java.lang.UnsupportedClassVersionError: kafka/Kafka", "old Java"),
        ("Error: Could not find or load main class kafka.Kafka", "missing jar"),
        ("org.apache.kafka.common.config.ConfigException: Invalid value -3", "refused property"),
        ("java.nio.file.AccessDeniedException: /d", "permission"),
        ("java.io.IOException: File too large", "file too large"),
    ],
)
def test_known_causes_are_recognised(line: str, name: str) -> None:
    cause = failures.find_cause(f"[now] INFO starting\n{line}\n\tat kafka.Kafka.main\n")
    assert cause is not None
    assert cause.name == name


def test_the_meaningful_lines_are_errors_without_their_stack() -> None:
    log = "INFO a\n[now] ERROR bad (x)\njava.io.IOException: worse\n\tat a.b(c)\n\t... 3 more\nINFO b\n"
    assert failures.meaningful_lines(log) == ["[now] ERROR bad (x)", "java.io.IOException: worse"]
    assert failures.meaningful_lines("one\ntwo\n") == ["one", "two"]
    assert failures.find_cause("INFO all is well") is None
