"""At least once, and without any guarantee: each task encodes and sends by itself; no shuffle, no transaction.

at-least-once    An idempotent producer per task attempt; the task ends when everything is acknowledged. A task or
                 micro-batch that runs again sends its records again: readers may see them twice, and they may see a
                 part of a micro-batch that is then repeated. Nothing is lost.
none             Every request is sent once, with the acks that were asked for. What a broker does not take is counted
                 and logged, and lost.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkonce.errors import InDoubtError, RetriableError
from sparkonce.model import TopicPartition
from sparkonce.records import EncodedBatch, seal
from sparkonce.send import Sender, SendSettings
from sparkonce.spark.batch import BatchReceipt, collect, source_offsets
from sparkonce.spark.encode_stage import EncodePlan, Encoder
from sparkonce.spark.input_columns import check_columns
from sparkonce.spark.offset_log import PlannedBatch
from sparkonce.spark.outputs import Select, selected
from sparkonce.spark.sink_options import SinkOptions
from sparkonce.spark.this_task import this_task
from sparkonce.wire import (
    Appended,
    Client,
    Handle,
    ProduceSettings,
    TransactionProtocol,
    commit_offsets,
    init_producer,
    send_produce,
)

log = logging.getLogger(__name__)
SPARK_SCHEMA = "receipt string"
_SCHEMA = pa.schema([pa.field("receipt", pa.string())])


@dataclass(frozen=True, slots=True)
class TaskReceipt:
    """What one task sent, and what it lost (only possible without a guarantee)."""

    records: int
    sent_bytes: int
    lost: int = 0

    def to_text(self) -> str:
        """As JSON, for Spark's result."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TaskReceipt:
        """Reads `to_text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class DirectStage:
    """The function that Spark maps over the Arrow batches of a partition."""

    plan: EncodePlan
    waits: bool
    """Whether everything must be acknowledged: at least once."""
    acks: int
    requests_in_flight: int
    deadline_ms: int

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encodes and sends; gives one receipt."""
        context = this_task()
        encoded = Encoder(self.plan, context.partitionId()).encode(arrow_batches)
        with Client(self.plan.connection) as client:
            receipt = self._send_safely(client, encoded) if self.waits else self._send_once(client, encoded)
        yield pa.RecordBatch.from_arrays([pa.array([receipt.to_text()])], schema=_SCHEMA)

    def _send_safely(self, client: Client, encoded: Iterator[tuple[TopicPartition, EncodedBatch]]) -> TaskReceipt:
        settings = SendSettings(
            producer=init_producer(client, None, 0),
            transactional_id=None,
            protocol=TransactionProtocol.V1,
            requests_in_flight=self.requests_in_flight,
            deadline_ms=self.deadline_ms,
        )
        sender = Sender(client, settings)
        for partition, batch in encoded:
            sender.send(partition, batch.data)
        receipts = sender.finish()
        return TaskReceipt(sum(r.record_count for r in receipts), sum(r.sent_bytes for r in receipts))

    def _send_once(self, client: Client, encoded: Iterator[tuple[TopicPartition, EncodedBatch]]) -> TaskReceipt:
        records = sent_bytes = lost = 0
        settings = ProduceSettings(acks=self.acks, idempotent=False)
        waiting: deque[tuple[TopicPartition, int, Handle[Appended]]] = deque()
        for partition, batch in encoded:
            handle = send_produce(client, client.leader(partition), {partition: seal(batch.data)}, settings)
            waiting.append((partition, batch.record_count, handle))
            records += batch.record_count
            sent_bytes += len(batch.data)
            if len(waiting) >= self.requests_in_flight:
                lost += _lost(*waiting.popleft())
        lost += sum(_lost(*entry) for entry in waiting)
        return TaskReceipt(records, sent_bytes, lost)


def _lost(partition: TopicPartition, records: int, handle: Handle[Appended]) -> int:
    """How many of the records are, or may be, lost. What a person has to correct is raised."""
    outcome = handle.result()[partition]
    if isinstance(outcome, Appended):
        return 0
    if not isinstance(outcome, RetriableError | InDoubtError):
        raise outcome
    log.warning("%d records for %s may be lost: %s", records, partition, outcome)
    return records


class DirectWriter:
    """Writes micro-batches without a transaction."""

    def __init__(self, options: SinkOptions, select: Select = None) -> None:
        self._options = options
        self._select = select
        self._client = Client(options.connection)

    @property
    def open_seconds(self) -> float:
        """As `Writer` says: there is no transaction."""
        return 0.0

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def write(self, rows: DataFrame, batch: PlannedBatch) -> BatchReceipt:
        """Sends the rows, then notes the source's offsets for the group that watches them."""
        options, chosen = self._options, selected(rows, self._select)
        names = check_columns(chosen.schema, options)
        stage = DirectStage(
            plan=EncodePlan.of(options, self._client),
            waits=options.guarantee == "at-least-once",
            acks=options.acks,
            requests_in_flight=options.requests_in_flight,
            deadline_ms=options.deadline_ms,
        )
        collected = collect(chosen.select(*names).mapInArrow(stage.__call__, SPARK_SCHEMA))
        receipts = [TaskReceipt.from_text(row["receipt"]) for row in collected]
        for group, offsets in source_offsets(options.offsets_group, batch).items():
            commit_offsets(self._client, group, offsets)
        return BatchReceipt(
            batch_id=batch.batch_id,
            records=sum(receipt.records for receipt in receipts),
            sent_bytes=sum(receipt.sent_bytes for receipt in receipts),
            lost_records=sum(receipt.lost for receipt in receipts),
        )
