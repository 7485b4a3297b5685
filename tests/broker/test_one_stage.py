"""Tasks that send in turns, at a real desk and to a real broker, without Spark."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkonce.devbroker import DevBroker
from sparkonce.model import TopicPartition
from sparkonce.records import Codec
from sparkonce.send import Receipt, Sender, SendSettings
from sparkonce.spark import one_stage
from sparkonce.spark.encode_stage import EncodePlan
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.grant_turns import take_turns
from sparkonce.spark.kept import Data, keeping
from sparkonce.spark.one_stage import OneStage
from sparkonce.wire import TransactionProtocol, init_producer
from tests.broker.wire_samples import client_of, partitions_of, record_batch, values_in
from tests.conftest import TopicFactory

TASKS, PARTITIONS, BATCHES = 3, 4, 8
UNDER_WAY: dict[TopicPartition, Sender] = {}


class Watched(Sender):
    """A sender that must find a partition as it should be: everything of the task before is acknowledged."""

    def send(self, partition: TopicPartition, encoded: Data) -> None:
        assert UNDER_WAY.setdefault(partition, self) is self, f"another task is still sending to {partition}"
        super().send(partition, encoded)

    def settle(self, partition: TopicPartition) -> None:
        super().settle(partition)
        UNDER_WAY.pop(partition, None)


def values_of(task: int, partition: TopicPartition) -> list[list[bytes]]:
    """The records of each batch."""
    return [[b"%d-%d-%d-%d" % (partition.partition, task, batch, i) for i in range(3)] for batch in range(BATCHES)]


def send(stage: OneStage, task: int, partitions: list[TopicPartition]) -> list[Receipt]:
    """One task, without the encoding."""
    with take_turns(stage.grants, stage.round_name, task, TASKS) as turn, keeping(held_bytes_max=1_000) as kept:
        batches = {partition: values_of(task, partition) for partition in partitions}
        records = Counter({partition: sum(map(len, values)) for partition, values in batches.items()})
        pieces = {
            partition: [kept.keep(record_batch(values)) for values in of_partition]
            for partition, of_partition in batches.items()
        }
        receipts = stage._send(turn, records, pieces, kept)
        turn.report_done()
    return receipts


@pytest.mark.parametrize("sent_together_bytes", [0, one_stage.SENT_TOGETHER_BYTES], ids=["one by one", "together"])
def test_a_partition_is_handed_over_when_all_is_acknowledged(
    sent_together_bytes: int, broker: DevBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_stage, "SENT_TOGETHER_BYTES", sent_together_bytes)
    monkeypatch.setattr(one_stage, "Sender", Watched)
    UNDER_WAY.clear()
    partitions = partitions_of(topic(broker, partitions=PARTITIONS), PARTITIONS)
    desk = GrantDesk("127.0.0.1", "127.0.0.1")
    try:
        with client_of(broker) as client, desk.round("round"), ThreadPoolExecutor(TASKS) as pool:
            settings = SendSettings(init_producer(client, None, 0), None, TransactionProtocol.V1)
            plan = EncodePlan(client.options, None, {}, Codec.none, 1_000_000, "murmur2")
            stage = OneStage(plan, settings, desk.address, "round")
            # The second has nothing for the last partition.
            under_way = [
                pool.submit(send, stage, task, partitions[: -1 if task == 1 else None]) for task in range(TASKS)
            ]
            receipts = [receipt for task in under_way for receipt in task.result(60)]
    finally:
        desk.close()
    assert len(receipts) == TASKS * PARTITIONS - 1
    assert {(receipt.batch_count, receipt.record_count) for receipt in receipts} == {(BATCHES, 3 * BATCHES)}
    assert values_in(broker, partitions[0].topic, PARTITIONS) == [
        value
        for partition in partitions
        for task in range(TASKS)
        if task != 1 or partition != partitions[-1]
        for values in values_of(task, partition)
        for value in values
    ]
