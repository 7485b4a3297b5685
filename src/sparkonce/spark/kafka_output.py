"""Kafka as an output: rows are encoded and sent in the driver's transaction, which is the query's decision."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql

from sparkonce.commit import Decision, Handle, Run, query_digest
from sparkonce.errors import AbortableError, SparkonceError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.participants.kafka import KafkaDecisions, decision_of
from sparkonce.send import Receipt, SendSettings
from sparkonce.spark import send_stage, shuffled
from sparkonce.spark.batch import collect, source_offsets
from sparkonce.spark.encode_stage import EncodePlan, EncodeStage
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.input_columns import check_columns
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.spark.one_stage import OneStage, can_run_together, failed_in_a_task, was_refused
from sparkonce.spark.outputs import Output, Select, selected
from sparkonce.spark.send_stage import SendStage, ShareReceipts
from sparkonce.spark.sink_options import SinkOptions
from sparkonce.transaction import Candidate, KafkaTransaction, Marker, Owner, TransactionSettings, is_committed
from sparkonce.wire import Client, broker_configs

log = logging.getLogger(__name__)

TIMEOUT_GROWTH = 2
"""How much longer a transaction may be open after one has expired."""


class KafkaOutput(Output):
    """The query's Kafka sink: it holds the connections, and the transactional id once `decisions` was called."""

    def __init__(self, options: SinkOptions, select: Select = None) -> None:
        if options.transactional_id is None or options.guarantee != "exactly-once":
            raise UsageError("exactly-once needs guarantee='exactly-once' and a transactional_id")
        self.receipts: list[Receipt] = []
        """Of the latest job."""
        self._options = options
        self._select = select
        self._transactional_id = options.transactional_id
        self._client = Client(options.connection)
        self._columns: list[str] = []
        self._plan: EncodePlan | None = None
        self._is_first_run = True
        self._transaction: KafkaTransaction | None = None
        self._decisions: KafkaDecisions | None = None
        self._limits = BrokerLimits()

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def check(self, rows: DataFrame) -> None:
        """As `Output` says. The topic's partitions are counted for every micro-batch: there may be new ones."""
        self._columns = check_columns(selected(rows, self._select).schema, self._options)
        self._plan = EncodePlan.of(self._options, self._client)
        self._is_first_run = True

    def decisions(self, batch: PlannedBatch, leftover_epoch: Callable[[], int], *, has_stores: bool) -> KafkaDecisions:
        """What the query's first micro-batch in this driver claims. If a person says that it is committed, and Kafka
        has forgotten it, `leftover_epoch` tells which run that was.
        """
        self._limits = broker_limits(self._client)
        timeout_ms = self._options.transaction_timeout_ms
        if timeout_ms > self._limits.timeout_max_ms:
            log.warning(
                "transaction_timeout_ms=%d is above the broker's maximum; %d is used",
                timeout_ms,
                self._limits.timeout_max_ms,
            )
            timeout_ms = self._limits.timeout_max_ms
        owner = Owner.here(batch.query_id)
        settings = TransactionSettings(self._transactional_id, self._marker_home(batch), owner)
        self._transaction = KafkaTransaction(self._client, settings)

        def judge(marker: Marker | None) -> Decision | None:
            return self._last_decision(marker, batch, leftover_epoch)

        self._decisions = KafkaDecisions(self._transaction, timeout_ms, judge, has_stores=has_stores)
        return self._decisions

    def decide_with(self, batch: PlannedBatch) -> None:
        """The offsets of the micro-batch's sources will be part of its decision."""
        _, decisions = self._claimed()
        decisions.source_offsets = source_offsets(self._options.offsets_group, batch)

    def prepare(self, rows: DataFrame, run: Run, desk: GrantDesk) -> list[Handle]:  # noqa: ARG002
        """As `Output` says. There are no branches: everything is in the one transaction, under the run's producer."""
        transaction, decisions = self._claimed()
        producer = decisions.producer
        round_name = f"{producer.producer_id}/{producer.producer_epoch}"
        settings = SendSettings(
            producer=producer,
            transactional_id=self._transactional_id,
            protocol=transaction.protocol,
            requests_in_flight=self._options.requests_in_flight,
            deadline_ms=self._options.deadline_ms,
        )
        chosen = selected(rows, self._select).select(*self._columns)
        with desk.round(round_name, transaction.add_partitions):
            collected = self._collect(chosen, settings, desk, round_name)
        shares = [ShareReceipts.from_text(row["receipts"]) for row in collected]
        require_one_encoding(shares)
        self.receipts = [receipt for share in shares for receipt in share.receipts]
        return []

    def allow_more_time(self, batch: PlannedBatch, open_seconds: float) -> None:
        """After an expiry: a longer timeout for the next attempt, until the broker's maximum has been tried."""
        _, decisions = self._claimed()
        if open_seconds * 1000 < decisions.timeout_ms:
            return
        if decisions.timeout_ms >= self._limits.timeout_max_ms:
            raise AbortableError(
                f"the transaction of batch {batch.batch_id} expired after {decisions.timeout_ms:,} ms, the most that "
                f"the broker allows; nothing of it is visible. Make micro-batches smaller (maxOffsetsPerTrigger), give "
                f"the output topic more partitions and Spark more cores, or raise transaction.max.timeout.ms there"
            )
        decisions.timeout_ms = min(decisions.timeout_ms * TIMEOUT_GROWTH, self._limits.timeout_max_ms)
        log.warning("the transaction expired; the next attempt may take %d ms", decisions.timeout_ms)

    def _claimed(self) -> tuple[KafkaTransaction, KafkaDecisions]:
        if self._transaction is None or self._decisions is None:
            raise RuntimeError("the transactional id was not claimed")
        return self._transaction, self._decisions

    def _marker_home(self, batch: PlannedBatch) -> TopicPartition:
        if self._options.topic is not None:
            return TopicPartition(self._options.topic, 0)
        sources = sorted(batch.kafka_offsets())
        if not sources:
            raise UsageError("rows choose their topics: set the sink's topic too, where the marker is to be kept")
        return sources[0]

    def _last_decision(
        self, marker: Marker | None, batch: PlannedBatch, leftover_epoch: Callable[[], int]
    ) -> Decision | None:
        age_ms = time.time_ns() // 1_000_000 - batch.planned_ms
        committed = is_committed(
            marker,
            Candidate(batch.query_id, batch.batch_id, batch.digest, age_ms),
            transactional_id=self._transactional_id,
            marker_life_ms=self._limits.marker_life_ms,
            on_missing_marker=self._options.on_missing_marker,
        )
        if marker is None:
            query = query_digest(batch.query_id)
            return Decision(query, batch.batch_id, leftover_epoch(), batch.digest) if committed else None
        if marker.owner.query_id != batch.query_id:
            log.warning("transactional id %s begins a new life; before: %s", self._transactional_id, marker.owner)
            return None
        return decision_of(marker)

    def _collect(self, rows: DataFrame, settings: SendSettings, desk: GrantDesk, round_name: str) -> list[Row]:
        """In one stage if that can be, and only in the first run of a micro-batch: in two, Spark repeats what fails."""
        if self._plan is None:
            raise RuntimeError("the rows were not checked")
        is_first, self._is_first_run = self._is_first_run, False
        together = OneStage(self._plan, settings, desk.address, round_name).job(rows)
        if self._options.one_stage and is_first and can_run_together(together):
            log.info("%s is sent in one stage", round_name)
            try:
                return collect(together)
            except SparkonceError:
                raise
            except Exception as error:
                if failed_in_a_task(error):
                    raise AbortableError("a task failed that ran together with all others") from error
                if not was_refused(error):
                    raise
                log.info("Spark does not run the tasks together; from now on batches are shuffled: %s", error)
                self._options = replace(self._options, one_stage=False)
        return collect(self._shuffled(rows, self._plan, settings, desk, round_name))

    def _shuffled(
        self, rows: DataFrame, plan: EncodePlan, settings: SendSettings, desk: GrantDesk, round_name: str
    ) -> DataFrame:
        """Encode, shuffle, send."""
        parallelism = rows.sparkSession.sparkContext.defaultParallelism
        shares = parallelism if "topic" in rows.columns else min(parallelism, *plan.partition_counts.values())
        send = SendStage(self._options.connection, settings, desk.address, round_name)
        encoded = rows.mapInArrow(EncodeStage(plan, shares).__call__, shuffled.SPARK_SCHEMA)
        placed = encoded.repartitionById(shares, sql.col("share")).select("frame")
        return placed.mapInArrow(send.__call__, send_stage.SPARK_SCHEMA)


def require_one_encoding(shares: list[ShareReceipts]) -> None:
    """All shares must come from the same attempts of the same encoding tasks. After a lost executor some may have been
    encoded again, and a query that is not deterministic then gives other rows: some doubled, some missing.
    """
    origins = {origin for share in shares for origin in share.encoders}
    mixed = sorted(origin for origin in origins if len({share.encoders.get(origin) for share in shares}) > 1)
    if mixed:
        raise AbortableError(f"Spark partitions {mixed} were encoded again while others were being sent")


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What the brokers allow; Kafka's defaults."""

    timeout_max_ms: int = 15 * 60_000
    marker_life_ms: int = 7 * 24 * 3_600_000


def broker_limits(client: Client) -> BrokerLimits:
    """Read from a broker, where that is permitted."""
    defaults = BrokerLimits()
    try:
        configs = broker_configs(client, min(client.metadata([]).brokers))
    except UsageError as error:
        log.warning("the brokers' limits cannot be read, Kafka's defaults are assumed: %s", error)
        return defaults
    timeout = configs["transaction.max.timeout.ms"].value
    life_minutes = configs["offsets.retention.minutes"].value
    return BrokerLimits(
        int(timeout) if timeout else defaults.timeout_max_ms,
        int(life_minutes) * 60_000 if life_minutes else defaults.marker_life_ms,
    )
