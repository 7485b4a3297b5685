"""Stage 2, in tasks: one task a share sends the batches of its partitions in order and gives receipts.

The whole share is taken in before the first byte is sent: shuffled rows come in any order, and by the manifests among
them the task knows all its partitions and that nothing is missing. So the transaction is open only while bytes travel.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from sparkonce.errors import AbortableError
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.send import Receipt, Sender, SendSettings
from sparkonce.spark.grant_shares import ask_for_share
from sparkonce.spark.grant_task import GrantAddress
from sparkonce.spark.share import Share, read_share
from sparkonce.spark.this_task import this_task
from sparkonce.wire import Client

SPARK_SCHEMA = "receipts string"
SCHEMA = pa.schema([pa.field("receipts", pa.string())])


@dataclass(frozen=True, slots=True)
class ShareReceipts:
    """What one sending task did: its receipts, and which attempts had encoded what it sent."""

    share: int
    encoders: dict[int, int]
    """Spark partition → task attempt that encoded it; empty if the task encoded by itself."""
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
        context = this_task()
        with read_share(arrow_batches) as share:
            text = self._send(context.partitionId(), context.taskAttemptId(), share)
        yield pa.RecordBatch.from_arrays([pa.array([text])], schema=SCHEMA)

    def _send(self, number: int, attempt: int, share: Share) -> str:
        if not share.partitions:
            return ShareReceipts(number, share.encoders).to_text()
        with ask_for_share(self.grants, self.round_name, number, attempt, share.partitions) as grant:
            if grant.finished_receipts is not None:
                return grant.finished_receipts
            with Client(self.connection) as client:
                sender = Sender(client, self.settings)
                for partition, batch in share.batches():
                    sender.send(partition, batch)
                receipts = sender.finish()
            check_counts(share.expected, receipts)
            text = ShareReceipts(number, share.encoders, receipts).to_text()
            grant.report(text)
            return text


def check_counts(expected: Counter[TopicPartition], receipts: list[Receipt]) -> None:
    """Raises unless as many records were sent to each partition as were encoded for it."""
    sent = {receipt.partition: receipt.record_count for receipt in receipts}
    wrong = [
        f"{partition}: {expected[partition]} encoded, {sent.get(partition, 0)} sent"
        for partition in sorted(expected.keys() | sent.keys())
        if expected[partition] != sent.get(partition, 0)
    ]
    if wrong:
        raise AbortableError(f"records encoded and records sent differ: {'; '.join(wrong)}")
