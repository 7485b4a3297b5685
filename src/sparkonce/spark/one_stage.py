"""Encode and send in one stage, without a shuffle: its tasks run at the same time and send in turns.

Spark's barrier mode starts all tasks of a stage together or none, and ends them together: none is tried again, none is
copied. It wants a free core for every task, and a plan in which nothing merges partitions on the way. Where that is not
so, and where Spark would wait for certain cores, `encode_stage` and `send_stage` do the work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame

from sparkonce.model import TopicPartition
from sparkonce.send import Receipt, Sender, SendSettings
from sparkonce.spark.encode_stage import EncodePlan, Encoder
from sparkonce.spark.grant_task import GrantAddress
from sparkonce.spark.grant_turns import TurnTaking, take_turns
from sparkonce.spark.kept import Kept, Piece, keeping
from sparkonce.spark.send_stage import SCHEMA, SPARK_SCHEMA, ShareReceipts, check_counts
from sparkonce.spark.this_task import set_imports_aside
from sparkonce.wire import Client

TASKS_MAX = 16
"""A partition passes through the tasks one after the other, some milliseconds each: with many, a shuffle is faster."""
SENT_TOGETHER_BYTES = 1024 * 1024
"""Partitions with little are sent to at once and handed over at once."""


@dataclass(frozen=True, slots=True)
class OneStage:
    """The function that Spark maps over the Arrow batches of a partition."""

    plan: EncodePlan
    settings: SendSettings
    grants: GrantAddress
    round_name: str

    def job(self, rows: DataFrame) -> DataFrame:
        """The job that encodes and sends the rows."""
        return rows.mapInArrow(self.__call__, SPARK_SCHEMA, barrier=True)

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encodes all, then sends; gives one row with the receipts."""
        context = BarrierTaskContext.get()
        set_imports_aside()
        task, tasks = context.partitionId(), len(context.getTaskInfos())
        with take_turns(self.grants, self.round_name, task, tasks) as turn, keeping() as kept:
            records: Counter[TopicPartition] = Counter()
            pieces: dict[TopicPartition, list[Piece]] = defaultdict(list)
            for partition, batch in Encoder(self.plan, task).encode(arrow_batches):
                records[partition] += batch.record_count
                pieces[partition].append(kept.keep(batch.data))
            receipts = self._send(turn, records, pieces, kept)
            check_counts(records, receipts)
            turn.report_done()
        text = ShareReceipts(task, {}, receipts).to_text()
        yield pa.RecordBatch.from_arrays([pa.array([text])], schema=SCHEMA)

    def _send(
        self, turn: TurnTaking, records: Counter[TopicPartition], pieces: dict[TopicPartition, list[Piece]], kept: Kept
    ) -> list[Receipt]:
        turns = turn.join(records)
        if not turns:
            return []
        with Client(self.plan.connection) as client:
            sender, unfinished = Sender(client, self.settings), len(pieces)
            while True:
                for together in sent_together({partition: pieces[partition] for partition in turns}):
                    for partition in together:
                        sender.begin(partition, turns[partition])
                        for piece in pieces.pop(partition):
                            sender.send(partition, kept.load(piece))
                    for partition in together:
                        sender.settle(partition)
                    turn.finish(together)
                    unfinished -= len(together)
                if not unfinished:
                    return sender.finish()
                turns = turn.next()


def sent_together(pieces: dict[TopicPartition, list[Piece]]) -> Iterator[list[TopicPartition]]:
    """Groups of partitions: each has little, or is a single partition."""
    group: list[TopicPartition] = []
    group_bytes = 0
    for partition in sorted(pieces):
        size = sum(piece.size for piece in pieces[partition])
        if group and group_bytes + size > SENT_TOGETHER_BYTES:
            yield group
            group, group_bytes = [], 0
        group.append(partition)
        group_bytes += size
    if group:
        yield group


def can_run_together(job: DataFrame) -> bool:
    """Whether there is a core for every task of the job, whichever it is, and Spark will not change their number."""
    execution = job._jdf.queryExecution()
    if execution.executedPlan().nodeName() == "AdaptiveSparkPlan":
        return False
    spark = job.sparkSession.sparkContext._jsc.sc()
    cores = spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())
    rdd = execution.toRdd()
    tasks = rdd.getNumPartitions()
    # Spark waits seconds for an executor that a task prefers, because of its state, say, and all others wait with it.
    return tasks <= min(cores, TASKS_MAX) and all(spark.getPreferredLocs(rdd, task).isEmpty() for task in range(tasks))


def was_refused(error: BaseException) -> bool:
    """Whether Spark would not run the tasks together: because of the plan, of executors that come and go as it sees
    fit, or of cores that are gone.
    """
    return "org.apache.spark.scheduler.BarrierJob" in str(error)


def failed_in_a_task(error: BaseException) -> bool:
    """Whether a task was the reason, and not, say, that the query is being stopped."""
    return "failed barrier ResultStage" in str(error)
