"""The demo's judge: what should be in the output and what is, read by librdkafka."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from demo.pipeline import BIG_AMOUNT
from demo.reader import read_topic
from sparkonce.model import TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records import decode, read_headers
from sparkonce.wire import Client, FetchFrom, FetchSettings, Isolation, OffsetAt, fetch, list_offsets

_COMMIT = 1


@dataclass(frozen=True)
class Verdict:
    """What came out of the pipeline, beside what should have."""

    expected: int
    found: int
    missing: int
    doubled: int
    committed: int
    aborted: int

    @property
    def is_exactly_once(self) -> bool:
        """Whether every big order is there once and nothing else is."""
        return self.missing == 0 and self.doubled == 0 and self.found == self.expected


def judge(bootstrap_servers: str, partitions: int) -> Verdict:
    """Reads both topics from the beginning, committed records only, and counts the transactions of the output."""
    orders = read_ids(bootstrap_servers, "orders", partitions, least_amount=BIG_AMOUNT)
    found = read_ids(bootstrap_servers, "big-orders", partitions)
    committed, aborted = count_transactions(bootstrap_servers, "big-orders", partitions)
    return Verdict(
        expected=len(orders),
        found=sum(found.values()),
        missing=len(orders.keys() - found.keys()),
        doubled=sum(count - 1 for count in found.values()),
        committed=committed,
        aborted=aborted,
    )


def read_ids(bootstrap_servers: str, topic: str, partitions: int, least_amount: float = 0) -> Counter[int]:
    """The ids of all orders of at least that amount, with how often each is there."""
    ids: Counter[int] = Counter()
    for message in read_topic(bootstrap_servers, topic, partitions):
        order = json.loads(message.value())
        if order["amount"] >= least_amount:
            ids[order["id"]] += 1
    return ids


def count_transactions(bootstrap_servers: str, topic: str, partitions: int) -> tuple[int, int]:
    """Committed and aborted transactions, by the markers that the broker has written behind their records."""
    ends: dict[tuple[int, int], int] = {}
    with Client(ConnectionOptions(bootstrap_servers=bootstrap_servers)) as client:
        for index in range(partitions):
            partition = TopicPartition(topic, index)
            end = list_offsets(client, {partition: OffsetAt.LATEST}, Isolation.READ_UNCOMMITTED)[partition].offset
            offset = 0
            while offset < end:
                settings = FetchSettings(isolation=Isolation.READ_UNCOMMITTED)
                records = fetch(client, {partition: FetchFrom(offset)}, settings)[partition].records
                headers = read_headers(records, partition)
                markers = [key for batch in decode(records, headers, headers.is_control) for key in batch["key"]]
                identities = zip(
                    headers.producer_id[headers.is_control], headers.producer_epoch[headers.is_control], strict=True
                )
                for (producer_id, epoch), key in zip(identities, markers, strict=True):
                    # A marker's key: its version and its type, two bytes each.
                    ends[int(producer_id), int(epoch)] = int.from_bytes(key.as_py()[2:4], "big")
                offset = int(headers.last_offset[-1]) + 1
    return sum(kind == _COMMIT for kind in ends.values()), sum(kind != _COMMIT for kind in ends.values())
