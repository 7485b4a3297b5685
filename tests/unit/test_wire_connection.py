"""Connections and retries against a scripted peer: order, losses, silence, doubt."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorResponse
from kafka.protocol.producer import EndTxnResponse, InitProducerIdResponse

from sparkonce.errors import FencedError, InDoubtError, RetriableError, UsageError
from sparkonce.model import ProducerIdentity
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, Deadline, TransactionProtocol, end_transaction, init_producer
from sparkonce.wire.apis import END_TXN_V2, METADATA, Api
from sparkonce.wire.client import message_encoder
from sparkonce.wire.cluster import metadata_body
from sparkonce.wire.connection import Address, Connection, Pending
from tests.unit.wire_fake_broker import Answer, FakeBroker, api_versions, encode, fake_broker, metadata

V2 = TransactionProtocol.V2
ME = ProducerIdentity(7, 3)


def options(broker: FakeBroker, **more: Any) -> ConnectionOptions:
    defaults: dict[str, Any] = {"request_timeout_ms": 2_000, "deadline_ms": 5_000, "bootstrap_timeout_ms": 1_000}
    return ConnectionOptions(bootstrap_servers=broker.address, **(defaults | more))


# One connection


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    theirs.settimeout(5)
    connection = Connection(Address("h", 1, 9), ours, "me", 1_000)
    with ours, theirs:
        yield connection, theirs


def submit(connection: Connection, api: Api = METADATA, version: int = 12, payload: bytes = b"q") -> Pending:
    pending = Pending(connection, api, version, 1_000, expects_answer=True)
    connection.submit(pending, lambda correlation: [struct.pack(">i", correlation), payload])
    return pending


def answer(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 5, correlation_id) + b"\x00" + body


def test_requests_go_out_in_order_and_answers_come_back_in_order(pair: tuple[Connection, socket.socket]) -> None:
    connection, peer = pair
    pendings = [submit(connection, payload=bytes([i])) for i in range(3)]
    assert peer.recv(100) == b"".join(struct.pack(">i", i + 1) + bytes([i]) for i in range(3))
    assert connection.in_flight == 3
    peer.sendall(answer(1, b"one") + answer(2, b"two"))
    connection.read()
    assert [p.done for p in pendings] == [True, True, False]
    assert [bytes(p.body()) for p in pendings[:2]] == [b"one", b"two"]


def test_an_answer_in_single_bytes_is_put_together(pair: tuple[Connection, socket.socket]) -> None:
    connection, peer = pair
    pending = submit(connection)
    seen = []
    for byte in answer(1, b"hello"):
        seen.append(pending.done)
        peer.sendall(bytes([byte]))
        connection.read()
    assert not any(seen)
    assert bytes(pending.body()) == b"hello"


def test_a_request_that_the_socket_does_not_take_at_once_is_finished_later(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, peer = pair
    payload = os.urandom(4_000_000)
    submit(connection, payload=payload)
    left_over = [connection.wants_to_write]
    received = bytearray()
    while len(received) < len(payload) + 4:
        received += peer.recv(1_000_000)
        connection.write()
    assert [*left_over, connection.wants_to_write] == [True, False]
    assert bytes(received[4:]) == payload


def test_the_answer_to_another_question_breaks_the_connection(pair: tuple[Connection, socket.socket]) -> None:
    connection, peer = pair
    pending = submit(connection)
    peer.sendall(answer(5, b""))
    connection.read()
    assert connection.closed
    with pytest.raises(RetriableError, match="not sent"):
        pending.body()


@pytest.mark.parametrize("length", [b"\x15\x03\x03\x00", b"HTTP", b"\x00\x00\x04\x00", b"\xff\xff\xff\xff"])
def test_bytes_that_are_no_answer_are_named_as_such(pair: tuple[Connection, socket.socket], length: bytes) -> None:
    connection, peer = pair
    pending = submit(connection)
    peer.sendall(length)
    connection.read()
    with pytest.raises(UsageError, match=r"broker 9 at h:1.*security\.protocol"):
        pending.body()


def test_a_lost_answer_is_retriable_or_in_doubt_by_what_was_asked(pair: tuple[Connection, socket.socket]) -> None:
    connection, peer = pair
    question, decision = submit(connection), submit(connection, END_TXN_V2, 5)
    peer.close()
    connection.read()
    with pytest.raises(RetriableError, match="broker 9 at h:1"):
        question.body()
    with pytest.raises(InDoubtError, match="may or may not"):
        decision.body()


def test_what_never_left_is_not_in_doubt(pair: tuple[Connection, socket.socket]) -> None:
    connection, _ = pair
    submit(connection, payload=bytes(4_000_000))
    decision = submit(connection, END_TXN_V2, 5)
    connection.fail("cut")
    assert not decision.sent
    with pytest.raises(RetriableError):
        decision.body()


def test_a_request_without_an_answer_is_done_when_it_is_written(pair: tuple[Connection, socket.socket]) -> None:
    connection, peer = pair
    pending = Pending(connection, METADATA, 12, 1_000, expects_answer=False)
    connection.submit(pending, lambda _: [b"a", bytes(4_000_000)])
    rounds = 0
    while not pending.done:
        peer.recv(1_000_000)
        connection.write()
        rounds += 1
    assert rounds > 0
    assert connection.in_flight == 0


# A client with a scripted broker


def coordinator(broker: FakeBroker, version: int) -> bytes:
    found = {"key": "tx", "node_id": 1, "host": "127.0.0.1", "port": broker.port, "error_code": 0}
    return encode(FindCoordinatorResponse, version, {"coordinators": [found]})


def script(end: list[int | None] | None = None, init: list[int] | None = None) -> Answer:
    """A broker that knows a cluster of itself. EndTxn and InitProducerId answer these codes; None hangs up."""

    def reply(broker: FakeBroker, key: int, version: int, _frame: bytes) -> bytes | None:
        if key == 18:
            return api_versions()
        if key == 3:
            return metadata(broker, version)
        if key == 10:
            return coordinator(broker, version)
        if key == 22:
            return encode(InitProducerIdResponse, version, {"error_code": (init or [0]).pop(0), "producer_id": 5})
        code = (end or [0]).pop(0)
        if code is None:
            return None
        return encode(EndTxnResponse, version, {"error_code": code, "producer_id": 7, "producer_epoch": 4})

    return reply


def test_an_accepted_end_returns_the_next_identity() -> None:
    with fake_broker(script(end=[0])) as broker, Client(options(broker)) as client:
        assert end_transaction(client, "tx", ME, commit=True, protocol=V2) == ProducerIdentity(7, 4)


@pytest.mark.parametrize("code", [14, 15, 16, 7, -1, None])
def test_an_unclear_end_is_in_doubt_and_is_not_sent_twice(code: int | None) -> None:
    with fake_broker(script(end=[code, 0])) as broker, Client(options(broker)) as client:
        with pytest.raises(InDoubtError):
            end_transaction(client, "tx", ME, commit=True, protocol=V2)
        assert broker.requests.count(26) == 1


@pytest.mark.parametrize("code", [15, 16])
def test_after_a_moved_coordinator_it_is_looked_up_again(code: int) -> None:
    with fake_broker(script(end=[code, 0])) as broker, Client(options(broker)) as client:
        with pytest.raises(InDoubtError):
            end_transaction(client, "tx", ME, commit=True, protocol=V2)
        end_transaction(client, "tx", ME, commit=True, protocol=V2)
        assert broker.requests.count(10) == 2


def test_a_concurrent_transaction_is_waited_for() -> None:
    with fake_broker(script(end=[51, 51, 0], init=[51, 14, 16, 0])) as broker, Client(options(broker)) as client:
        assert end_transaction(client, "tx", ME, commit=True, protocol=V2) == ProducerIdentity(7, 4)
        assert init_producer(client, "tx", 1_000).producer_id == 5
        assert broker.requests.count(22) == 4
        assert broker.requests.count(10) == 2


def test_an_end_that_only_ever_waits_is_in_doubt_at_the_deadline() -> None:
    with fake_broker(script(end=[51] * 1_000)) as broker, Client(options(broker)) as client:
        began = time.monotonic()
        with pytest.raises(InDoubtError, match="gave up after"):
            end_transaction(client, "tx", ME, Deadline.after_ms(400), commit=True, protocol=V2)
        assert time.monotonic() - began < 30


def test_a_fenced_end_is_not_retried() -> None:
    with fake_broker(script(end=[90, 0])) as broker, Client(options(broker)) as client:
        with pytest.raises(FencedError, match=r"producer 7, epoch 3"):
            end_transaction(client, "tx", ME, commit=True, protocol=V2)
        assert broker.requests.count(26) == 1


def test_retries_stop_at_the_deadline_and_say_how_often_they_tried() -> None:
    with fake_broker(script(init=[51] * 1_000)) as broker, Client(options(broker)) as client:
        began = time.monotonic()
        with pytest.raises(RetriableError, match=r"CONCURRENT_TRANSACTIONS.*gave up after \d+ attempts"):
            init_producer(client, "tx", 1_000, deadline=Deadline.after_ms(500))
        assert time.monotonic() - began < 30
        assert 2 <= broker.requests.count(22) < 20


def test_an_answer_that_makes_no_sense_is_as_good_as_none() -> None:
    def reply(broker: FakeBroker, key: int, version: int, frame: bytes) -> bytes | None:
        return b"\x00" if key in (22, 26) else script()(broker, key, version, frame)

    with fake_broker(reply) as broker, Client(options(broker)) as client:
        with pytest.raises(InDoubtError, match="cannot be read"):
            end_transaction(client, "tx", ME, commit=True, protocol=V2)
        with pytest.raises(RetriableError, match="cannot be read"):
            init_producer(client, "tx", 1_000, deadline=Deadline.after_ms(300))


def test_a_silent_broker_is_named() -> None:
    release = threading.Event()

    def reply(broker: FakeBroker, key: int, version: int, _frame: bytes) -> bytes | None:
        if key == 22:
            release.wait(20)
            return None
        return script()(broker, key, version, _frame)

    with fake_broker(reply) as broker, Client(options(broker, request_timeout_ms=300)) as client:
        with pytest.raises(RetriableError, match=f"broker 1 at 127.0.0.1:{broker.port}: it was silent for 300 ms"):
            # Long enough for one silence, too short for a second try.
            init_producer(client, "tx", 1_000, deadline=Deadline.after_ms(330))
        release.set()


def test_time_spent_computing_is_not_held_against_the_broker() -> None:
    with fake_broker(script()) as broker, Client(options(broker, request_timeout_ms=200)) as client:
        client.metadata(())
        address = client.broker(1, client.deadline())
        pending = client.send(address, METADATA, message_encoder(METADATA, metadata_body(())), client.deadline())
        time.sleep(0.5)  # the caller decodes something
        client.connections.wait_any([pending], client.deadline())
        assert len(pending.body()) > 0


def test_a_connection_that_the_broker_closed_while_idle_is_noticed_before_sending() -> None:
    with fake_broker(script(end=[0, 0])) as broker, Client(options(broker)) as client:
        end_transaction(client, "tx", ME, commit=True, protocol=V2)
        broker.disconnect_all()
        end_transaction(client, "tx", ME, commit=True, protocol=V2)
        assert broker.connections == 2


def test_a_connection_idle_for_too_long_is_replaced() -> None:
    with (
        fake_broker(script(end=[0, 0])) as broker,
        Client(options(broker, connections_max_idle_ms=50)) as client,
    ):
        end_transaction(client, "tx", ME, commit=True, protocol=V2)
        time.sleep(0.1)
        end_transaction(client, "tx", ME, commit=True, protocol=V2)
        assert broker.connections == 2


def test_an_old_broker_is_refused_at_once() -> None:
    with fake_broker(lambda *_: api_versions([(3, 0, 12), (24, 0, 3)])) as broker, Client(options(broker)) as client:
        with pytest.raises(UsageError, match=r"older than Apache Kafka 3\.6"):
            client.metadata(())
        assert broker.connections == 1


def test_bootstrap_servers_that_cannot_be_reached_are_all_named_with_their_reasons() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    servers = f"127.0.0.1:{port},no-such-host.invalid:9092"
    chosen = ConnectionOptions(bootstrap_servers=servers, bootstrap_timeout_ms=500)
    began = time.monotonic()
    with Client(chosen) as client, pytest.raises(UsageError) as caught:
        client.metadata(())
    text = str(caught.value)
    assert f"127.0.0.1:{port}: Connection refused" in text
    assert "no-such-host.invalid:9092: the name cannot be resolved" in text
    assert time.monotonic() - began < 30


def test_a_listener_that_hangs_up_is_suspected_of_another_protocol() -> None:
    with (
        fake_broker(lambda *_: None) as broker,
        Client(options(broker)) as client,
        pytest.raises(UsageError, match=r"security\.protocol=PLAINTEXT"),
    ):
        client.metadata(())


def test_a_second_bootstrap_server_is_used_when_the_first_is_silent() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent, fake_broker(script()) as broker:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{broker.address}"
        chosen = ConnectionOptions(bootstrap_servers=servers, bootstrap_timeout_ms=3_000)
        with Client(chosen) as client:
            assert client.metadata(()).cluster_id == "fake"


def test_a_closed_client_and_one_of_another_process_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_broker(script()) as broker:
        client = Client(options(broker))
        client.metadata(())
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(UsageError, match="another process"):
                client.metadata(())
        client.close()
        client.close()
        with pytest.raises(UsageError, match="closed"):
            client.metadata(())
