"""Connections to PostgreSQL and what its errors mean. The one place that knows SQLSTATE codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sparkonce.errors import AbortableError, RetriableError, SparkonceError, UsageError

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

DEFAULTS = {"connect_timeout": "10", "application_name": "sparkonce", "client_encoding": "utf8"}
UNDEFINED_OBJECT = "42704"
"""COMMIT PREPARED and ROLLBACK PREPARED of a name that is not prepared."""

_TRANSIENT_CLASSES = {"08", "40", "53", "57", "58", "XX"}
"""Connections, serialisation and deadlocks, resources such as a full disk, an operator, the system."""
_TRANSIENT = {"55000", "55006", "55P03"}
"""A prepared transaction that another session is just finishing; a lock that was not given in time."""
_STARTING = ("starting up", "shutting down", "recovery mode", "too many", "not yet accepting", "reserved for")
"""A server that refuses a connection with one of these will accept it later."""


def connect(dsn: str) -> Connection:
    """A connection on which every statement is its own transaction until BEGIN says otherwise."""
    try:
        return psycopg.connect(make_conninfo("", **(DEFAULTS | conninfo_to_dict(dsn))), autocommit=True)
    except psycopg.ProgrammingError as error:
        raise UsageError(f"the dsn cannot be read: {error}") from error


@contextmanager
def connected(dsn: str, doing: str) -> Iterator[Connection]:
    """A connection for the driver's work: what may pass is retriable."""
    with translated(doing, RetriableError), connect(dsn) as connection:
        yield connection


@contextmanager
def translated(doing: str, transient: type[RetriableError] | type[AbortableError]) -> Iterator[None]:
    """Errors of the server as ours. What may pass is `transient`: a task cannot repeat a statement, the driver can."""
    try:
        yield
    except psycopg.Error as error:
        raise meaning(error, doing, transient) from error


def meaning(error: psycopg.Error, doing: str, transient: type[RetriableError] | type[AbortableError]) -> SparkonceError:
    """One error of the server as one of ours."""
    parts = [error.diag.message_primary or str(error).strip(), error.diag.message_detail, error.diag.message_hint]
    text = f"PostgreSQL, {doing}: {'. '.join(part for part in parts if part)}"
    state = error.sqlstate
    if state is None:
        refused = "FATAL" in text and not any(word in text for word in _STARTING)
        return UsageError(text) if refused else transient(text)
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT:
        return transient(text)
    return UsageError(text)


def close_quietly(connection: Connection) -> None:
    """The server rolls back what is open."""
    with suppress(psycopg.Error, OSError):
        connection.close()
