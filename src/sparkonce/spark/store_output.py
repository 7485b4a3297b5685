"""A store as an output: every task loads its rows into a branch of its own and prepares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from sparkonce.commit import Handle, Participant, Run, write_branch
from sparkonce.spark.batch import collect
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.grant_shares import ask_for_share
from sparkonce.spark.grant_task import GrantAddress
from sparkonce.spark.outputs import Output, Select, selected
from sparkonce.spark.this_task import this_task

SPARK_SCHEMA = "handle string"
_SCHEMA = pa.schema([pa.field("handle", pa.string())])
_NO_ROWS = ""


@dataclass(frozen=True, slots=True)
class PrepareStage:
    """The function that Spark maps over the Arrow batches of a partition."""

    participant: Participant
    run: Run
    grants: GrantAddress
    round_name: str

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Loads and prepares; gives one row with the handle."""
        context = this_task()
        text = self._prepare(context.partitionId(), context.taskAttemptId(), arrow_batches)
        yield pa.RecordBatch.from_arrays([pa.array([text])], schema=_SCHEMA)

    def _prepare(self, partition: int, attempt: int, arrow_batches: Iterator[pa.RecordBatch]) -> str:
        with ask_for_share(self.grants, self.round_name, partition, attempt, []) as grant:
            if grant.finished_receipts is not None:
                return grant.finished_receipts
            branch = self.run.branch(self.participant.name, partition, attempt)
            handle = write_branch(self.participant, branch, arrow_batches)
            text = handle.to_text() if handle else _NO_ROWS
            grant.report(text)
            return text


@dataclass(slots=True)
class StoreOutput(Output):
    """A sink in a store."""

    participant: Participant
    select: Select = None
    _checked: StructType | None = field(default=None, init=False)

    def check(self, rows: DataFrame) -> None:
        """As `Output` says. A schema is looked at once: the store need not be asked for every micro-batch."""
        chosen = selected(rows, self.select)
        if chosen.schema != self._checked:
            self.participant.check(chosen.limit(0).toArrow().schema)
            self._checked = chosen.schema

    def prepare(self, rows: DataFrame, run: Run, desk: GrantDesk) -> list[Handle]:
        """As `Output` says. There are as many branches as tasks that run at a time: each holds a slot of the store."""
        branches = branch_count(rows)
        chosen, keys = selected(rows, self.select), self.participant.kept_together
        placed = chosen.repartition(branches, *keys) if keys else chosen.coalesce(branches)
        round_name = f"{run.batch_id}/{run.epoch}/{self.participant.name}"
        stage = PrepareStage(self.participant, run, desk.address, round_name)
        with desk.round(round_name):
            collected = collect(placed.mapInArrow(stage.__call__, SPARK_SCHEMA))
        return [Handle.from_text(row["handle"]) for row in collected if row["handle"] != _NO_ROWS]


def branch_count(rows: DataFrame) -> int:
    """How many branches of one micro-batch there can be in a store."""
    return rows.sparkSession.sparkContext.defaultParallelism
