"""What the two ways of writing a micro-batch share: its receipt, its source's offsets, and how its job fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row

from sparkonce.model import TopicPartition
from sparkonce.spark.job_errors import error_of_task
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.wire import GroupOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceipt:
    """What became of a micro-batch."""

    batch_id: int
    records: int = 0
    """Sent to Kafka."""
    sent_bytes: int = 0
    stored_rows: Mapping[str, int] = field(default_factory=dict)
    """By the name of the store's sink."""
    attempts: int = 1
    """How often it was run: more than once if its transaction was aborted."""
    open_seconds: float = 0.0
    """How long its transaction was open: from the first permission to send to its end."""
    already_committed: bool = False
    lost_records: int = 0
    """Only possible without a guarantee."""


def collect(job: DataFrame) -> list[Row]:
    """Runs a job of ours; an error of ours in a task is raised here as what it is."""
    try:
        return job.collect()
    except Exception as error:
        ours = error_of_task(error)
        if ours is None:
            raise
        raise ours from error


def source_offsets(group: str | None, batch: PlannedBatch) -> dict[str, dict[TopicPartition, GroupOffset]]:
    """The end offsets of the batch's Kafka sources for the group that is to show them, if there is one."""
    if group is None:
        return {}
    return {group: {partition: GroupOffset(offset) for partition, offset in batch.kafka_offsets().items()}}
