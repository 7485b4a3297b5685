"""Stage 2, in tasks: one task a share sends the batches of its partitions in order and gives receipts.

Its rows are sorted, so that the manifests come first: by them the task knows all its partitions before its first byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from sparkonce.errors import AbortableError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.send import Receipt, Sender, SendSettings
from sparkonce.spark.encode_stage import MANIFEST_CHUNK
from sparkonce.spark.grants import GrantAddress, ask_for_share
from sparkonce.wire import Client

SPARK_SCHEMA = "receipts string"
_SCHEMA = pa.schema([pa.field("receipts", pa.string())])


@dataclass(frozen=True, slots=True)
class ShareReceipts:
    """What one sending task did: its receipts, and which attempts had encoded what it sent."""

    share: int
    encoders: dict[int, int]
    """Spark partition → task attempt that encoded it."""
    receipts: list[Receipt] = field(default_factory=list)

    def to_text(self) -> str:
        """As JSON, for Spark's result and for the driver's grant desk."""
        return json.dumps(
            {"share": self.share, "encoders": self.encoders, "receipts": [asdict(r) for r in self.receipts]}
        )

    @classmethod
    def from_text(cls, text: str) -> ShareReceipts:
        """Reads `to_text`."""
        fields = json.loads(text)
        receipts = [Receipt(**{**r, "partition": TopicPartition(**r["partition"])}) for r in fields["receipts"]]
        return cls(fields["share"], {int(origin): attempt for origin, attempt in fields["encoders"].items()}, receipts)


@dataclass(frozen=True, slots=True)
class SendStage:
    """The function that Spark maps over the Arrow batches of a share."""

    connection: ConnectionOptions
    settings: SendSettings
    grants: GrantAddress
    round_name: str

    def __call__(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends; gives one row with the receipts."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("the sending stage runs only in a Spark task")
        text = self._send(context.partitionId(), context.taskAttemptId(), _rows(arrow_batches))
        yield pa.RecordBatch.from_arrays([pa.array([text])], schema=_SCHEMA)

    def _send(self, share: int, attempt: int, rows: Iterator[dict[str, Any]]) -> str:
        encoders, expected, first = _read_manifests(rows)
        if first is None:
            return ShareReceipts(share, encoders).to_text()
        with ask_for_share(self.grants, self.round_name, share, attempt, list(expected)) as grant:
            if grant.finished_receipts is not None:
                return grant.finished_receipts
            with Client(self.connection) as client:
                sender = Sender(client, self.settings)
                _send_all(sender, first, rows)
                receipts = sender.finish()
            _check_counts(expected, receipts)
            text = ShareReceipts(share, encoders, receipts).to_text()
            grant.report(text)
            return text


def _rows(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    # One row is one record batch of up to a megabyte, so this is not a loop over records.
    for arrow_batch in arrow_batches:
        topics, partitions, origins = (arrow_batch[name] for name in ("topic", "partition", "origin"))
        chunks, batches = arrow_batch["chunk"], arrow_batch["batch"]
        for row in range(arrow_batch.num_rows):
            yield {
                "topic": topics[row].as_py(),
                "partition": partitions[row].as_py(),
                "origin": origins[row].as_py(),
                "chunk": chunks[row].as_py(),
                "batch": memoryview(batches[row].as_buffer()),
            }


def _read_manifests(
    rows: Iterator[dict[str, Any]],
) -> tuple[dict[int, int], Counter[TopicPartition], dict[str, Any] | None]:
    """The manifests at the front: encoders, records expected for each partition, and the first row behind them."""
    encoders: dict[int, int] = {}
    expected: Counter[TopicPartition] = Counter()
    for row in rows:
        if row["chunk"] != MANIFEST_CHUNK:
            return encoders, expected, row
        manifest = json.loads(bytes(row["batch"]))
        encoders[manifest["origin"]] = manifest["attempt"]
        for topic, partition, records in manifest["records"]:
            expected[TopicPartition(topic, partition)] += records
    if expected:
        raise AbortableError(f"batches for {sorted(map(str, expected))} were encoded but did not arrive")
    return encoders, expected, None


def _send_all(sender: Sender, first: dict[str, Any], rest: Iterator[dict[str, Any]]) -> None:
    row: dict[str, Any] | None = first
    while row is not None:
        sender.send(TopicPartition(row["topic"], row["partition"]), row["batch"])
        row = next(rest, None)


def _check_counts(expected: Counter[TopicPartition], receipts: list[Receipt]) -> None:
    sent = {receipt.partition: receipt.record_count for receipt in receipts}
    wrong = [
        f"{partition}: {expected[partition]} encoded, {sent.get(partition, 0)} sent"
        for partition in sorted(expected.keys() | sent.keys())
        if expected[partition] != sent.get(partition, 0)
    ]
    if wrong:
        raise AbortableError(f"records encoded and records sent differ: {'; '.join(wrong)}")
