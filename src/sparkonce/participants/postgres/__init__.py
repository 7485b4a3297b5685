"""PostgreSQL: prepared transactions, or staged tables where a server has none."""

try:
    import psycopg as _psycopg  # noqa: F401
except ImportError as error:
    from sparkonce.errors import UsageError

    raise UsageError("PostgreSQL needs a driver: pip install 'sparkonce[postgres]'") from error

from sparkonce.participants.postgres.modes import postgres_participant
from sparkonce.participants.postgres.prepared import PostgresPrepared
from sparkonce.participants.postgres.staged import PostgresStaged

__all__ = ["PostgresPrepared", "PostgresStaged", "postgres_participant"]
