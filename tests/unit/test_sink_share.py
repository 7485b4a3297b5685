"""What a sending task takes in: any order in, the order of sending out, from memory and from the file. No Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest

from sparkonce.errors import AbortableError
from sparkonce.model import TopicPartition
from sparkonce.send import Receipt
from sparkonce.spark.kept import keeping
from sparkonce.spark.send_stage import check_counts
from sparkonce.spark.share import read_share
from sparkonce.spark.shuffled import Frames

ORIGINS, CHUNKS, PARTITIONS = 3, 5, 4


def encoded(origin: int) -> list[pa.RecordBatch]:
    """The rows of one encoding task for one share, each for itself."""
    rows, frames = [], Frames(origin)
    for partition in range(PARTITIONS):
        for chunk in range(CHUNKS):
            batch = f"{partition}/{origin}/{chunk}".encode() * (1 + chunk)
            frames.add(0, TopicPartition("orders", partition), chunk, batch)
            rows.append(frames.taken())
    counts = [["orders", partition, 10 * CHUNKS] for partition in range(PARTITIONS)]
    frames.add_manifest(0, json.dumps({"origin": origin, "attempt": 100 + origin, "records": counts}).encode())
    return [*rows, frames.taken()]


@pytest.mark.parametrize("held_bytes_max", [0, 150, 1_000_000], ids=["file", "both", "memory"])
def test_batches_come_out_in_order_whatever_the_order_in(held_bytes_max: int) -> None:
    rows = [row for origin in range(ORIGINS) for row in encoded(origin)]
    random.Random(held_bytes_max).shuffle(rows)
    pieces = iter([pa.concat_batches(rows[start : start + 7]) for start in range(0, len(rows), 7)])
    with read_share(pieces, held_bytes_max) as share:
        batches = [(partition, bytes(batch)) for partition, batch in share.batches()]
        assert share.encoders == {0: 100, 1: 101, 2: 102}
        assert share.expected == {TopicPartition("orders", index): 10 * CHUNKS * ORIGINS for index in range(PARTITIONS)}
    for index in range(PARTITIONS):
        assert [data for partition, data in batches if partition.partition == index] == [
            f"{index}/{origin}/{chunk}".encode() * (1 + chunk) for origin in range(ORIGINS) for chunk in range(CHUNKS)
        ]
    # In turns: no partition comes twice in a row, so that all leaders have something to do.
    assert all(len(list(same)) == 1 for _, same in groupby(batches, lambda batch: batch[0]))


def test_a_share_without_records_has_only_its_manifests() -> None:
    frames = Frames(4)
    frames.add_manifest(1, json.dumps({"origin": 4, "attempt": 9, "records": []}).encode())
    with read_share(iter([frames.taken()])) as share:
        assert (share.encoders, dict(share.expected), list(share.batches())) == ({4: 9}, {}, [])


def test_what_has_no_room_is_kept_in_the_file_also_between_readings() -> None:
    with keeping(held_bytes_max=5) as kept:
        held, first = kept.keep(b"abcd"), kept.keep(b"efgh")
        assert (held.held, first.held) == (b"abcd", None)
        second = kept.keep(b"ij")
        assert kept.load(first) == b"efgh"
        third = kept.keep(b"klm")
        assert [bytes(kept.load(piece)) for piece in (third, held, second, first)] == [b"klm", b"abcd", b"ij", b"efgh"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({0: 5}, "orders-1: 2 encoded, 0 sent"),
        ({0: 4, 1: 2}, "orders-0: 5 encoded, 4 sent"),
        ({0: 5, 1: 2, 2: 1}, "orders-2: 0 encoded, 1 sent"),
    ],
)
def test_as_many_must_be_sent_as_were_encoded(sent: dict[int, int], message: str) -> None:
    encoded_records = Counter({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 2})
    receipts = [Receipt(TopicPartition("orders", index), count, 1, 100) for index, count in sent.items()]
    with pytest.raises(AbortableError, match=f"differ: {message}$"):
        check_counts(encoded_records, receipts)
