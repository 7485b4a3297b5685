"""Ends streaming queries whose sources have all reached their stop, whatever their trigger.

Spark has no way for a source to say that nothing will ever come. A listener is told when a query found nothing to do,
not even an empty micro-batch for its state; it then looks at the offsets that the query has committed.
"""

from __future__ import annotations

import json
import logging
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sparkonce.errors import UsageError
from sparkonce.fetch import progress_from_json

_log = logging.getLogger(__name__)
_sessions: set[str] = set()


def end_queries_at_their_stop(spark: SparkSession) -> None:
    """Adds the listener, once to a session. A Spark Connect session has no place for it."""
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None or java_session.sessionUUID() in _sessions:
        return
    _sessions.add(java_session.sessionUUID())
    spark.streams.addListener(EndAtStop(spark))


class EndAtStop(StreamingQueryListener):
    """Stops the queries of one session that have nothing left to read for good."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """A query had nothing to do for a while (spark.sql.streaming.noDataProgressEventInterval)."""
        if all_reached_stop(self._committed(str(event.id))):
            # Stopping waits for the query's thread, and Spark's other listeners would wait with it.
            Thread(target=self._stop, args=(str(event.id), str(event.runId)), daemon=True).start()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: a query that keeps state may still have to close windows after its last record."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def _committed(self, query_id: str) -> list[str | None]:
        """What each source of a running query has committed, as the source wrote it; None where it has nothing yet."""
        java: Any = self._spark.sparkContext._jvm
        running = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        execution = running.get(java.java.util.UUID.fromString(query_id))
        if execution is None:
            return [None]
        offsets = execution.committedOffsets()
        found = [offsets.get(source) for source in _elements(execution.sources())]
        return [offset.get().json() if offset.isDefined() else None for offset in found]

    def _stop(self, query_id: str, run_id: str) -> None:
        query = self._spark.streams.get(query_id)
        if query is not None and str(query.runId) == run_id:
            _log.info("query %s has read everything up to its stop, and ends", query.name or query_id)
            query.stop()


def all_reached_stop(committed: list[str | None]) -> bool:
    """Whether all sources are sparkonce's and have read up to their stop."""
    return all(text is not None and _reached_stop(text) for text in committed)


def _reached_stop(text: str) -> bool:
    try:
        value = json.loads(text)
        return isinstance(value["version"], int) and progress_from_json(value).finished
    except (UsageError, ValueError, KeyError, TypeError):
        return False


def _elements(java_sequence: Any) -> list[Any]:
    return [java_sequence.apply(index) for index in range(java_sequence.size())]
