"""MariaDB and MySQL: XA transactions, or staged tables and one local transaction."""

try:
    import pymysql as _pymysql  # noqa: F401
except ImportError as error:
    from sparkonce.errors import UsageError

    raise UsageError("MariaDB needs a driver: pip install 'sparkonce[mariadb]'") from error

from sparkonce.participants.mariadb.modes import mariadb_participant
from sparkonce.participants.mariadb.staged import MariaDBStaged
from sparkonce.participants.mariadb.xa import MariaDBPrepared

__all__ = ["MariaDBPrepared", "MariaDBStaged", "mariadb_participant"]
