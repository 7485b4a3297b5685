"""One micro-batch, one transaction: the driver's side of exactly-once.

    claim the id → is the batch committed already? → begin → encode │ shuffle │ send → offsets + marker → end

A run that fails is aborted and, where that can help, run again under a fresh epoch: a bounded number of times.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sparkonce.errors import AbortableError, FencedError, SparkonceError, UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.send import Receipt, SendSettings
from sparkonce.spark import encode_stage, send_stage
from sparkonce.spark.batch import BatchReceipt, collect, source_offsets
from sparkonce.spark.encode_stage import EncodePlan, EncodeStage
from sparkonce.spark.grants import GrantDesk
from sparkonce.spark.input_columns import check_columns
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.spark.send_stage import SendStage, ShareReceipts
from sparkonce.spark.sink_options import SinkOptions
from sparkonce.transaction import Candidate, KafkaTransaction, Marker, Owner, TransactionSettings, is_committed
from sparkonce.wire import Client, broker_configs

log = logging.getLogger(__name__)

TIMEOUT_GROWTH = 2
"""How much longer a transaction may be open after one has expired."""


class ExactlyOnceWriter:
    """Writes the micro-batches of one query, one after the other."""

    def __init__(self, options: SinkOptions, spark: SparkSession) -> None:
        if options.transactional_id is None:
            raise UsageError("exactly-once needs a transactional_id")
        self._options = options
        self._transactional_id = options.transactional_id
        self._client = Client(options.connection)
        conf = spark.sparkContext.getConf()
        host = options.grants_host or conf.get("spark.driver.host") or "localhost"
        bind_host = conf.get("spark.driver.bindAddress") or host
        self._desk = GrantDesk(host, bind_host, options.grants_port)
        self._transaction: KafkaTransaction | None = None
        self._marker: Marker | None = None
        self._timeout_ms = options.transaction_timeout_ms
        self._timeout_max_ms = options.transaction_timeout_ms
        self._marker_life_ms = 0

    def close(self) -> None:
        """Ends the listener and the connections."""
        self._desk.close()
        self._client.close()

    def write(self, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        """Commits the micro-batch, or finds that it is committed already; either way its plan is executed once."""
        names = check_columns(rows.schema, self._options)
        plan = EncodePlan.of(self._options, self._client)
        transaction = self._transaction or self._claim(batch)
        if self._is_committed(batch):
            # State and watermark must advance although nothing is sent.
            rows.write.format("noop").mode("overwrite").save()
            log.info("batch %d of query %s is committed already", batch.batch_id, batch.query_id)
            return BatchReceipt(batch_id=batch.batch_id, attempts=0, already_committed=True)
        return self._run(transaction, plan, rows.select(*names), batch)

    def _claim(self, batch: PlannedBatch) -> KafkaTransaction:
        limits = broker_limits(self._client)
        self._timeout_max_ms, self._marker_life_ms = limits.transaction_timeout_max_ms, limits.marker_life_ms
        if self._timeout_ms > self._timeout_max_ms:
            log.warning(
                "transaction_timeout_ms=%d is above the broker's maximum; %d is used",
                self._timeout_ms,
                self._timeout_max_ms,
            )
            self._timeout_ms = self._timeout_max_ms
        owner = Owner.here(batch.query_id)
        settings = TransactionSettings(self._transactional_id, self._marker_home(batch), owner)
        self._transaction = KafkaTransaction(self._client, settings)
        self._marker = self._transaction.claim(self._timeout_ms)
        if self._marker is not None and self._marker.owner.query_id != batch.query_id:
            log.warning("transactional id %s begins a new life; before: %s", self._transactional_id, self._marker.owner)
        return self._transaction

    def _marker_home(self, batch: PlannedBatch) -> TopicPartition:
        if self._options.topic is not None:
            return TopicPartition(self._options.topic, 0)
        sources = sorted(batch.kafka_offsets())
        if not sources:
            raise UsageError("rows choose their topics: set the sink's topic too, where the marker is to be kept")
        return sources[0]

    def _is_committed(self, batch: PlannedBatch) -> bool:
        age_ms = time.time_ns() // 1_000_000 - batch.planned_ms
        return is_committed(
            self._marker,
            Candidate(batch.query_id, batch.batch_id, batch.digest, age_ms),
            transactional_id=self._transactional_id,
            marker_life_ms=self._marker_life_ms,
            on_missing_marker=self._options.on_missing_marker,
        )

    def _run(
        self, transaction: KafkaTransaction, plan: EncodePlan, rows: DataFrame, batch: PlannedBatch
    ) -> BatchReceipt:
        failure: SparkonceError | None = None
        for attempt in range(1, self._options.retries + 2):
            producer = transaction.begin(self._timeout_ms)
            try:
                job = self._job(transaction, plan, rows, producer)
                shares = self._send(transaction, job, producer)
                marker = Marker(batch.batch_id, transaction.settings.owner, producer, batch.digest)
                transaction.pre_commit(marker, source_offsets(self._options.offsets_group, batch))
            except (AbortableError, FencedError) as error:
                # An expired transaction looks like a lost id; the abort finds out, and raises if it is lost.
                failure = error
                transaction.abort()
            except BaseException:
                transaction.abort()
                raise
            else:
                if transaction.commit():
                    self._marker = marker
                    return _receipt(batch, shares, attempt, self._desk.open_seconds())
                failure = AbortableError("the broker aborted the transaction before it was committed")
            log.warning("batch %d was aborted and nothing of it is visible: %s", batch.batch_id, failure)
            if self._desk.open_seconds() * 1000 >= self._timeout_ms:
                self._allow_more_time(batch)
        raise AbortableError(
            f"batch {batch.batch_id} could not be committed in {self._options.retries + 1} attempts; nothing of it is "
            f"visible. The last reason: {failure}"
        ) from failure

    def _job(
        self, transaction: KafkaTransaction, plan: EncodePlan, rows: DataFrame, producer: ProducerIdentity
    ) -> DataFrame:
        """Encode, shuffle, send."""
        options = self._options
        parallelism = rows.sparkSession.sparkContext.defaultParallelism
        shares = parallelism if "topic" in rows.columns else min(parallelism, *plan.partition_counts.values())
        settings = SendSettings(
            producer=producer,
            transactional_id=self._transactional_id,
            protocol=transaction.protocol,
            requests_in_flight=options.requests_in_flight,
            deadline_ms=options.deadline_ms,
        )
        send = SendStage(options.connection, settings, self._desk.address, _round_name(producer))
        encoded = rows.mapInArrow(EncodeStage(plan, shares).__call__, encode_stage.SPARK_SCHEMA)
        shuffled = encoded.repartitionById(shares, sql.col("share"))
        return shuffled.mapInArrow(send.__call__, send_stage.SPARK_SCHEMA)

    def _send(self, transaction: KafkaTransaction, job: DataFrame, producer: ProducerIdentity) -> list[ShareReceipts]:
        """Runs the job. Only meanwhile does the desk give permission to send."""
        self._desk.open_round(_round_name(producer), transaction.add_partitions)
        try:
            collected = collect(job)
        finally:
            self._desk.close_round()
        shares = [ShareReceipts.from_text(row["receipts"]) for row in collected]
        require_one_encoding(shares)
        return shares

    def _allow_more_time(self, batch: PlannedBatch) -> None:
        """After an expiry: a longer timeout for the next attempt, until the broker's maximum has been tried."""
        if self._timeout_ms >= self._timeout_max_ms:
            raise AbortableError(
                f"the transaction of batch {batch.batch_id} expired after {self._timeout_ms:,} ms, the most that the "
                f"broker allows; nothing of it is visible. Make micro-batches smaller (maxOffsetsPerTrigger), give "
                f"the output topic more partitions and Spark more cores, or raise transaction.max.timeout.ms there"
            )
        self._timeout_ms = min(self._timeout_ms * TIMEOUT_GROWTH, self._timeout_max_ms)
        log.warning("the transaction expired; the next attempt may take %d ms", self._timeout_ms)


def _round_name(producer: ProducerIdentity) -> str:
    """One run of a micro-batch: its epoch is fresh, so that no other run has this name."""
    return f"{producer.producer_id}/{producer.producer_epoch}"


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
    """What the brokers allow."""

    transaction_timeout_max_ms: int
    marker_life_ms: int


def broker_limits(client: Client) -> BrokerLimits:
    """Read from the broker; Kafka's defaults where that is not permitted."""
    try:
        brokers = client.metadata([]).brokers
        configs = broker_configs(client, min(brokers))
    except UsageError as error:
        log.warning("the brokers' limits cannot be read, Kafka's defaults are assumed: %s", error)
        return BrokerLimits(15 * 60_000, 7 * 24 * 3_600_000)
    timeout = int(configs["transaction.max.timeout.ms"].value or 15 * 60_000)
    life_minutes = int(configs["offsets.retention.minutes"].value or 7 * 24 * 60)
    return BrokerLimits(timeout, life_minutes * 60_000)


def _receipt(batch: PlannedBatch, shares: list[ShareReceipts], attempts: int, open_seconds: float) -> BatchReceipt:
    receipts: list[Receipt] = [receipt for share in shares for receipt in share.receipts]
    return BatchReceipt(
        batch_id=batch.batch_id,
        records=sum(receipt.record_count for receipt in receipts),
        sent_bytes=sum(receipt.sent_bytes for receipt in receipts),
        attempts=attempts,
        open_seconds=open_seconds,
    )
