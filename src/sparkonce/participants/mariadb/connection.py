"""Connections to MariaDB and MySQL and what their errors mean. The one place that knows error numbers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from sparkonce.errors import AbortableError, RetriableError, SparkonceError, UsageError

XAER_NOTA = 1397
"""The server knows no such branch, or will not give it to this session."""

NO_SUCH_TABLE = 1146
LOCK_WAIT_TIMEOUT = 1205

_TRANSIENT = {
    *(1021, 1037, 1041, 1114, 1205, 1206, 1213, 1614),  # full disk, memory, table full, lock waits, deadlocks
    *(1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1927),  # connections, shutdown
    *(2002, 2003, 2006, 2013, 2014, 2055),  # the client lost the server
}
_SCHEMES = ("mariadb", "mysql")
_BOOLEANS = {"true": True, "false": False}
# Strict, so that a value that does not fit is an error; backslashes escape; a zero stays a zero. In UTC, see `text`.
_SESSION = (
    "SET SESSION time_zone = '+00:00',"
    " sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"
)


class _Connection(pymysql.Connection):
    """Without options of its own a connection uses TLS if the server does. PyMySQL would read all certificates of the
    system for that, each time (25 ms), and check none.
    """

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[misc, no-any-return]
        return _unchecked_tls()


@cache
def _unchecked_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def parse_url(url: str) -> dict[str, Any]:
    """`mariadb://user:password@host:3306/database?ssl_ca=…` as arguments of the driver."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if parts.scheme not in _SCHEMES or not parts.hostname or not database:
        raise UsageError("the url must look like mariadb://user:password@host:3306/database")
    return {
        **{name: _BOOLEANS.get(value, value) for name, value in parse_qsl(parts.query)},
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(database),
    }


def connect(url: str) -> pymysql.Connection:
    """A connection on which every statement is its own transaction until one is begun."""
    arguments = {"connect_timeout": 10, "charset": "utf8mb4", "autocommit": True, **parse_url(url)}
    connection = _Connection(**arguments)
    try:
        execute(connection, _SESSION)
        # Rows of other tasks must not be locked by gaps between keys.
        execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except BaseException:
        close_quietly(connection)
        raise
    return connection


@contextmanager
def connected(url: str, doing: str) -> Iterator[pymysql.Connection]:
    """A connection for the driver's work: what may pass is retriable."""
    with translated(doing, RetriableError):
        connection = connect(url)
        try:
            yield connection
        finally:
            close_quietly(connection)


@contextmanager
def translated(doing: str, transient: type[RetriableError] | type[AbortableError]) -> Iterator[None]:
    """Errors of the server as ours. What may pass is `transient`: a task cannot repeat a statement, the driver can."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        raise meaning(error, doing, transient) from error


def meaning(
    error: pymysql.err.MySQLError, doing: str, transient: type[RetriableError] | type[AbortableError]
) -> SparkonceError:
    """One error of the server as one of ours. An InterfaceError, without a number, is a connection that is gone."""
    text = f"MariaDB, {doing}: {error.args[-1] if error.args else error}"
    may_pass = number_of(error) in _TRANSIENT or isinstance(error, pymysql.err.InterfaceError)
    return transient(text) if may_pass else UsageError(text)


def number_of(error: pymysql.err.MySQLError) -> int:
    """The server's number; 0 if it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def set_lock_timeout(connection: pymysql.Connection, timeout_ms: int) -> None:
    """How long the session waits for rows, and for tables, for which servers allow a day."""
    seconds = max(1, timeout_ms // 1000)
    execute(connection, f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}")


def execute(connection: pymysql.Connection, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """One statement and its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, tuple(values) or None)
        return list(cursor.fetchall())


def close_quietly(connection: pymysql.Connection) -> None:
    """The server rolls back what is open and not prepared."""
    with suppress(pymysql.err.MySQLError, OSError):
        connection.close()
