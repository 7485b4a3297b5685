"""The streaming reader: Spark's calls translated for the planner. Copies of it travel to tasks, without its client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sparkonce.fetch import UNSTARTED, StreamPlanner, progress_from_json
from sparkonce.fetch.offset_maps import nested
from sparkonce.spark.source_options import SourceOptions
from sparkonce.spark.source_tasks import input_partitions, read_partition
from sparkonce.wire import Client

_NO_LIMIT = 2**63 - 1


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query start, in a process of its own that Spark keeps while the query runs."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._client: Client | None = None
        self._planner: StreamPlanner | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaStreamReader, (self._options, self._schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing is decided yet: the first plan decides the start, and Spark logs it before anything is read."""
        return UNSTARTED.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Tells Spark's "everything" apart from its usual question; the limits themselves are the planner's."""
        return ReadMaxRows(self._options.settings.max_offsets or _NO_LIMIT)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; the same as `start` when there is nothing to do."""
        before = progress_from_json(start)
        # Spark asks when the micro-batch before is committed; `commit` comes later, and for the last one never.
        self._plan().committed(before)
        return self._plan().next(before, unlimited=isinstance(limit, ReadAllAvailable)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """For the query's progress, where `source_figures` reads it: what there is to read, and what was planned."""
        planner = self._plan()
        if planner.newest is None:
            return None
        told = {**planner.newest.to_json(), "bytes": planner.planned_bytes, "idleMs": planner.idle_ms}
        if planner.commits is None:
            return told
        counts, committed = planner.commits.counts, nested(planner.commits.committed)
        return {**told, "commits": {"succeeded": counts.succeeded, "failed": counts.failed, "offsets": committed}}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to what there is now, in as many micro-batches as the limits ask for."""
        self._plan().freeze_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch, the same ones whenever it is planned."""
        ranges = self._plan().ranges(progress_from_json(start), progress_from_json(end))
        return input_partitions(ranges, self._options.settings.max_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges."""
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed a micro-batch."""
        self._plan().committed(progress_from_json(end))

    def stop(self) -> None:
        """Spark does not always call it; the process ends anyway."""
        if self._client is not None:
            self._client.close()

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._client = Client(self._options.connection)
            self._planner = StreamPlanner(self._client, self._options.settings)
        return self._planner
