"""One micro-batch, all outputs or none: the loop that runs it, in the driver.

    claim the query → is the batch decided already? → begin → stores prepare, Kafka is sent to → decide → commit

A run that fails is aborted and, where that can help, run again under a fresh epoch: a bounded number of times.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from sparkonce.commit import (
    DecisionStore,
    FileDecisions,
    Handle,
    Run,
    State,
    TwoPhaseCommit,
    query_digest,
    sink_digest,
)
from sparkonce.errors import AbortableError, FencedError, InDoubtError, SparkonceError, UsageError
from sparkonce.spark.batch import BatchReceipt
from sparkonce.spark.checkpoint_folder import checkpoint_folder
from sparkonce.spark.executed_once import executed_once
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.kafka_output import KafkaOutput
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.spark.store_output import StoreOutput, branch_count

log = logging.getLogger(__name__)

DECISIONS = "sparkonce/decisions"
"""Where the decisions are, below the checkpoint, if the query has no Kafka sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How micro-batches are run, whatever they are written to."""

    retries: int = 3
    """How often a micro-batch that was aborted is run again."""
    grants_host: str | None = None
    """Where the executors reach the driver; Spark's own setting by default."""
    grants_port: int = 0

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise UsageError(f"retries must be 0 or more, not {self.retries}")


class ExactlyOnceWriter:
    """Writes the micro-batches of one query, one after the other."""

    def __init__(
        self, spark: SparkSession, options: RunOptions, kafka: KafkaOutput | None, stores: Sequence[StoreOutput] = ()
    ) -> None:
        self._options = options
        self._kafka = kafka
        self._stores = stores
        self._outputs = [*stores, *([kafka] if kafka else [])]
        """Kafka is the last one, so that its transaction is open for as short as possible."""
        conf = spark.sparkContext.getConf()
        host = options.grants_host or conf.get("spark.driver.host") or "localhost"
        self._desk = GrantDesk(host, conf.get("spark.driver.bindAddress") or host, options.grants_port)
        self._commit: TwoPhaseCommit | None = None

    @property
    def open_seconds(self) -> float:
        """As `Writer` says."""
        return self._desk.granted_seconds() if self._kafka else 0.0

    def close(self) -> None:
        """Ends the listener and the connections."""
        self._desk.close()
        if self._kafka:
            self._kafka.close()

    def write(self, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        """Commits the micro-batch, or finds that it is committed already; either way its plan is executed once."""
        for output in self._outputs:
            output.check(rows)
        commit = self._commit or self._claim(rows, batch)
        if commit.is_decided(batch.batch_id, batch.digest):
            # State and watermark must advance although nothing is written.
            rows.write.format("noop").mode("overwrite").save()
            log.info("batch %d of query %s is committed already", batch.batch_id, batch.query_id)
            return BatchReceipt(batch_id=batch.batch_id, attempts=0, already_committed=True)
        return self._run(commit, rows, batch)

    def _claim(self, rows: DataFrame, batch: PlannedBatch) -> TwoPhaseCommit:
        for store in self._stores:
            store.participant.preflight(branch_count(rows))
        participants = [store.participant for store in self._stores]
        commit = TwoPhaseCommit(batch.query_id, participants, self._decisions(rows.sparkSession, batch))
        commit.recover()
        self._commit = commit
        return commit

    def _decisions(self, spark: SparkSession, batch: PlannedBatch) -> DecisionStore:
        if self._kafka:
            return self._kafka.decisions(batch, lambda: self._leftover_epoch(batch), has_stores=bool(self._stores))
        return FileDecisions(checkpoint_folder(spark, f"{batch.checkpoint}/{DECISIONS}"), batch.query_id)

    def _leftover_epoch(self, batch: PlannedBatch) -> int:
        """The run of which something is prepared; 0 if there is none."""
        query = query_digest(batch.query_id)
        found = [handle for store in self._stores for handle in store.participant.in_doubt(query)]
        epochs = {handle.branch.epoch for handle in found if handle.branch.batch_id == batch.batch_id}
        if len(epochs) > 1:
            raise InDoubtError(
                f"batch {batch.batch_id} is said to be committed, but several runs of it are prepared: "
                f"{', '.join(sorted(handle.branch.name for handle in found))}. Roll back in the stores all but one run"
            )
        return max(epochs, default=0)

    def _run(self, commit: TwoPhaseCommit, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        failure: SparkonceError | None = None
        for attempt in range(1, self._options.retries + 2):
            run = commit.begin(batch.batch_id)
            try:
                handles = self._prepare(rows, run)
                if self._kafka:
                    self._kafka.decide_with(batch)
                commit.decide(handles, batch.digest)
            except (AbortableError, FencedError) as error:
                # An expired transaction looks like a lost id; the abort finds out, and raises if it is lost.
                failure = error
                commit.abort()
            except BaseException:
                if commit.state is not State.IN_DOUBT:
                    commit.abort()
                raise
            else:
                open_seconds = self._desk.open_seconds() if self._kafka else 0.0
                commit.commit()
                return self._receipt(batch, handles, attempt, open_seconds)
            log.warning("batch %d was aborted and nothing of it is visible: %s", batch.batch_id, failure)
            if self._kafka:
                self._kafka.allow_more_time(batch, self._desk.open_seconds())
        raise AbortableError(
            f"batch {batch.batch_id} could not be committed in {self._options.retries + 1} attempts; nothing of it is "
            f"visible. The last reason: {failure}"
        ) from failure

    def _prepare(self, rows: DataFrame, run: Run) -> list[Handle]:
        if len(self._outputs) == 1:
            return self._outputs[0].prepare(rows, run, self._desk)
        with executed_once(rows) as shared:
            return [handle for output in self._outputs for handle in output.prepare(shared, run, self._desk)]

    def _receipt(self, batch: PlannedBatch, handles: list[Handle], attempts: int, open_seconds: float) -> BatchReceipt:
        sent = self._kafka.receipts if self._kafka else []
        stored: Counter[str] = Counter()
        names = {sink_digest(name): name for name in (store.participant.name for store in self._stores)}
        for handle in handles:
            stored[names[handle.branch.sink]] += handle.rows or 0
        return BatchReceipt(
            batch_id=batch.batch_id,
            records=sum(receipt.record_count for receipt in sent),
            sent_bytes=sum(receipt.sent_bytes for receipt in sent),
            stored_rows=dict(stored),
            attempts=attempts,
            open_seconds=open_seconds,
        )
