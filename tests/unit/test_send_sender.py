"""The sender against a model of a leader: Kafka's rules for sequences, and any faults that hypothesis can think of."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.deadline import Deadline
from sparkonce.errors import AbortableError, Fault, RetriableError, SparkonceError, UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.options import ConnectionOptions
from sparkonce.records.layout import HEADER, BatchHeader
from sparkonce.send import Receipt, Sender, SendSettings, sender
from sparkonce.send.sender import next_sequence
from sparkonce.wire import Address, Appended, Client, TransactionProtocol
from sparkonce.wire.verdicts import error_for
from tests.broker.wire_samples import record_batch

TP = TopicPartition("topic", 0)
PRODUCER = ProducerIdentity(7, 3)
LARGEST = 2**31 - 1
FAULTS = ["none", "lost before", "lost after", "refused", "cannot send", "after append"]


def kafkas_increment(sequence: int, increment: int) -> int:
    """DefaultRecordBatch.incrementSequence, as its Java reads."""
    if sequence > LARGEST - increment:
        return increment - (LARGEST - sequence) - 1
    return sequence + increment


@given(st.integers(0, LARGEST), st.integers(1, LARGEST))
def test_sequences_go_on_as_in_kafka(sequence: int, count: int) -> None:
    assert next_sequence(sequence, count) == kafkas_increment(sequence, count)


def test_after_the_last_sequence_comes_zero() -> None:
    assert next_sequence(LARGEST, 1) == 0
    assert next_sequence(LARGEST - 1, 3) == 1


@pytest.mark.parametrize("requests", [0, 6, -1])
def test_more_than_the_broker_remembers_is_refused(requests: int) -> None:
    with pytest.raises(UsageError, match="1 to 5"):
        SendSettings(PRODUCER, None, TransactionProtocol.V2, requests_in_flight=requests)


def test_settings_and_receipts_travel() -> None:
    given_settings = SendSettings(PRODUCER, "id", TransactionProtocol.V1)
    receipt = Receipt(TP, 3, 1, 100)
    assert pickle.loads(pickle.dumps(given_settings)) == given_settings  # noqa: S301
    assert pickle.loads(pickle.dumps(receipt)) == receipt  # noqa: S301


@dataclass
class Leader:
    """What a leader does with one producer's batches, in the order in which they reach it (ProducerAppendInfo)."""

    faults: deque[str]
    log: list[BatchHeader] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    calls: int = 0

    def take(self, data: bytes | bytearray) -> Appended | SparkonceError:
        header = BatchHeader(*HEADER.unpack_from(data))
        fault = self.faults.popleft() if self.faults else "none"
        self.calls += 1
        if fault == "cannot send":
            raise lost("nothing was sent")
        if fault == "lost before":
            return lost("the request was lost")
        if fault == "refused":
            return error_for("Produce", 19, str(TP))
        outcome = self.append(header)
        if fault == "lost after":
            return lost("the answer was lost")
        return error_for("Produce", 20, str(TP)) if fault == "after append" else outcome

    def append(self, header: BatchHeader) -> Appended | SparkonceError:
        if any(header.base_sequence == old.base_sequence for old in self.log[-5:]):
            return Appended(-1, -1, -1)
        # A leader that does not know the producer takes any sequence number.
        if self.log and header.base_sequence != next_sequence(self.log[-1].base_sequence, self.log[-1].record_count):
            return error_for("Produce", 45, str(TP))
        self.log.append(header)
        return Appended(len(self.log), -1, 0)


def lost(why: str) -> RetriableError:
    return RetriableError(why, fault=Fault("Produce", None, "DISCONNECTED", "a broker"))


@dataclass
class ModelHandle:
    leader: Leader
    outcome: Appended | SparkonceError
    seen: bool = False

    def result(self, _deadline: Deadline) -> dict[TopicPartition, Appended | SparkonceError]:
        if not self.seen:
            self.seen = True
            self.leader.under_way -= 1
        return {TP: self.outcome}


class ModelClient:
    """The few things that a sender asks of its client."""

    def __init__(self) -> None:
        self.options = ConnectionOptions(bootstrap_servers="model:1")
        self.connections = self
        self.paused: list[float] = []

    def leader(self, _tp: TopicPartition, _deadline: Deadline) -> Address:
        return Address("model", 1, 0)

    def note_leader_error(self, _tp: TopicPartition, _error: SparkonceError) -> None:
        """Nothing to look up in a model."""

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)


def run(
    faults: list[str], counts: list[int], requests_in_flight: int = 5, first_sequence: int = 0
) -> tuple[Leader, list[Receipt]]:
    leader, client = Leader(deque(faults)), ModelClient()

    def model_send(
        _client: Client, _address: Address, batches: Mapping[TopicPartition, bytearray], *_: object
    ) -> ModelHandle:
        handle = ModelHandle(leader, leader.take(batches[TP]))
        leader.under_way += 1
        leader.most_under_way = max(leader.most_under_way, leader.under_way)
        return handle

    given_settings = SendSettings(PRODUCER, "id", TransactionProtocol.V2, requests_in_flight=requests_in_flight)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "send_produce", model_send)
        sending = Sender(cast("Client", client), given_settings)
        sending._lanes[TP] = sender._Lane(TP, sequence=first_sequence)
        for count in counts:
            sending.send(TP, record_batch([b"x"] * count))
        return leader, sending.finish()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FAULTS), max_size=60),
    st.lists(st.integers(1, 4), min_size=1, max_size=20),
    st.integers(1, 5),
    st.sampled_from([0, LARGEST - 6, LARGEST]),
)
def test_whatever_goes_wrong_every_batch_is_in_once_and_in_order(
    faults: list[str], counts: list[int], requests_in_flight: int, first_sequence: int
) -> None:
    leader, receipts = run(faults, counts, requests_in_flight, first_sequence)
    assert [header.record_count for header in leader.log] == counts
    expected, sequence = [], first_sequence
    for count in counts:
        expected.append(sequence)
        sequence = next_sequence(sequence, count)
    assert [header.base_sequence for header in leader.log] == expected
    assert {(header.producer_id, header.producer_epoch) for header in leader.log} == {(7, 3)}
    assert leader.most_under_way <= requests_in_flight
    assert [(r.record_count, r.batch_count) for r in receipts] == [(sum(counts), len(counts))]


def test_five_are_under_way_and_the_first_alone() -> None:
    leader, _ = run([], [1] * 20)
    assert leader.most_under_way == 5
    leader, _ = run(["lost before"], [1] * 2)
    assert leader.most_under_way == 1


def test_a_gap_that_nothing_explains_is_an_error() -> None:
    with pytest.raises(AbortableError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        run_with_gap()


def run_with_gap() -> None:
    real = next_sequence

    def skipping(sequence: int, count: int) -> int:
        return real(sequence, count) + (1 if sequence == 3 else 0)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "next_sequence", skipping)
        run([], [1] * 10)


@pytest.mark.parametrize("code", [10, 47, 29])
def test_what_cannot_pass_is_raised_at_once(code: int) -> None:
    error = error_for("Produce", code, str(TP))

    def refusing(*_: object) -> ModelHandle:
        return ModelHandle(Leader(deque()), error)

    client: Any = ModelClient()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "send_produce", refusing)
        sending = Sender(client, SendSettings(PRODUCER, "id", TransactionProtocol.V2))
        sending.send(TP, record_batch([b"x"]))
        with pytest.raises(type(error), match=f"\\({code}\\)"):
            sending.finish()
    assert client.paused == []


def test_tasks_that_failed_together_do_not_come_back_together() -> None:
    pauses = set()
    for _ in range(5):
        client: Any = ModelClient()
        leader = Leader(deque(["refused"]))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sender, "send_produce", lambda *a, taker=leader: ModelHandle(taker, taker.take(a[2][TP])))
            sending = Sender(client, SendSettings(PRODUCER, "id", TransactionProtocol.V2))
            sending.send(TP, record_batch([b"x"]))
            sending.finish()
        pauses.update(client.paused)
    assert len(pauses) == 5
