"""Real database servers of the tests' own: in a temporary folder, on a free port, as an unprivileged user.

Durability stays on: tests kill servers with SIGKILL and expect prepared transactions to be there afterwards. A server
dies with the process that started it, even if that is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pymysql
from tools import servers

from sparkonce.deadline import Deadline, wait_until

START_SECONDS = 60.0
STARTS = 10
START_PAUSE_SECONDS = 0.5
STOP_SECONDS = 60.0
MEMORY_BYTES = 2_000_000_000
USER, GROUP = "nobody", "nogroup"
"""The servers refuse to run as root."""


class DatabaseServer(ABC):
    """One server process and its folder."""

    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"sparkonce-{type(self).__name__.lower()}-", dir=_quick_place()))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER, GROUP)
        try:
            self._create()
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Starts the process and waits until it answers. A server that was killed refuses to start again while its
        orphaned processes are still ending, so it is asked more than once.
        """
        until = Deadline.after(START_SECONDS)
        for _ in range(STARTS):
            with (self.folder / "server.log").open("ab") as log:
                self._process = subprocess.Popen(_as_user(*self._command()), stdout=log, stderr=log, cwd=self.folder)
            wait_until(self._answers_or_ended, until)
            if self._process.poll() is None and self._answers():
                return
            self._end(signal.SIGKILL)
            time.sleep(START_PAUSE_SECONDS)
        log_text = (self.folder / "server.log").read_text(errors="replace")
        raise RuntimeError(f"{type(self).__name__} did not start:\n{log_text[-3000:]}")

    def kill(self) -> None:
        """SIGKILL, as a power cut would end it; wait for `start` to find it again."""
        self._end(signal.SIGKILL)

    def restart_after_kill(self) -> None:
        """What the contract suite does to a server that holds prepared transactions."""
        self.kill()
        self.start()

    @contextlib.contextmanager
    def files_limited(self, limit_bytes: int) -> Iterator[None]:
        """Connections that are made meanwhile cannot make files larger: to the server it is as if its disk was full."""
        assert self._process is not None
        # A process may change the limits of its own user's processes only.
        limit = ["prlimit", f"--pid={self._process.pid}"]
        _run(*limit, f"--fsize={limit_bytes}:unlimited", cwd=self.folder)
        try:
            yield
        finally:
            _run(*limit, "--fsize=unlimited:unlimited", cwd=self.folder)

    def close(self) -> None:
        """Ends the server and removes its folder."""
        self._end(self.stop_signal)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
        self._process = None

    def _answers_or_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None or self._answers()

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...


class Postgres(DatabaseServer):
    """PostgreSQL; `prepared=0` is the server's own default, with which nothing can be prepared."""

    stop_signal = signal.SIGINT

    def __init__(self, prepared: int = 64) -> None:
        self._prepared = prepared
        self._programs = _required("postgresql", servers.postgres_folder)
        super().__init__()

    @property
    def dsn(self) -> str:
        return self.dsn_at(self.port)

    def dsn_at(self, port: int) -> str:
        """The same server behind another port, a proxy's."""
        return f"host=127.0.0.1 port={port} user=postgres dbname=postgres"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn, autocommit=True)

    def _create(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        _run(self._programs / "initdb", "-D", self.folder / "data", *options, cwd=self.folder)

    def _command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_prepared_transactions": self._prepared,
            "max_connections": 60,
            "timezone": "Asia/Kolkata",  # not UTC: times must not depend on it
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options]

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


class MariaDB(DatabaseServer):
    """MariaDB."""

    database = "shop"

    def __init__(self) -> None:
        self._server = _required("mariadb-server", servers.mariadb_program)
        super().__init__()
        with contextlib.closing(self.connect("mysql")) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.database}")

    def connect(self, database: str = database) -> pymysql.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, ssl_disabled=True
        )

    def _create(self) -> None:
        data = f"--datadir={self.folder / 'data'}"
        options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        _run("mariadb-install-db", *options, data, cwd=self.folder)

    def _command(self) -> list[str]:
        return [
            str(self._server),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            "--default-time-zone=+05:30",  # not UTC: times must not depend on it
        ]

    def _answers(self) -> bool:
        try:
            self.connect("mysql").close()
        except pymysql.err.OperationalError:
            return False
        return True


def _required(package: str, find: Callable[[], Path | None]) -> Path:
    found = find()
    if found is None:
        raise RuntimeError(servers.advice([package]))
    return found


def _as_user(*command: str | Path) -> list[str]:
    parts = [str(part) for part in command]
    if os.geteuid() != 0:
        return ["setpriv", "--pdeathsig=KILL", *parts]
    return ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--pdeathsig=KILL", *parts]


def _run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(_as_user(*command), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def _quick_place() -> str | None:
    """Memory, if there is plenty: syncing to it takes no time, and it outlives the server as a disk would."""
    shared = Path("/dev/shm")  # noqa: S108  Folders in it are made by mkdtemp.
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free > MEMORY_BYTES else None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
