"""Who may send, over real sockets: owners, followers, strangers, and peers that fall silent."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from sparkonce.deadline import Deadline, wait_until
from sparkonce.errors import AbortableError, RetriableError, UsageError
from sparkonce.model import TopicPartition
from sparkonce.spark import grant_channel, grant_desk, grant_round, grant_task
from sparkonce.spark.grant_channel import Channel, ChannelError
from sparkonce.spark.grant_desk import GrantDesk
from sparkonce.spark.grant_shares import Grant, ask_for_share
from sparkonce.spark.grant_task import GrantAddress, ShareLostError
from tests.unit.grant_samples import desk_threads, failing

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 3)]


def eventually(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, Deadline.after(20))


def follower(desk: GrantDesk, attempt: int = 2, share: int = 0) -> str | None:
    """A later attempt: what it is given."""
    with ask_for_share(desk.address, "round", share, attempt, PARTITIONS) as grant:
        return grant.finished_receipts


def owner(desk: GrantDesk, attempt: int, share: int) -> str | None:
    """The first attempt: what it is given before it sends."""
    with ask_for_share(desk.address, "round", share, attempt, PARTITIONS) as grant:
        grant.report("what was sent")  # Ending without it would end the round for all others.
        return grant.finished_receipts


def waits(desk: GrantDesk, answer: Future[str | None], serving: int) -> None:
    """Until the attempt's question is being served, and it has no answer."""
    eventually(lambda: len(desk._serving) == serving)
    assert not answer.done()


def test_the_first_attempt_sends_and_later_ones_get_its_receipts(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    assert desk.open_seconds() == 0
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS) as grant:
        assert grant.finished_receipts is None
        assert desk.open_seconds() > 0
        waiting = pool.submit(follower, desk)
        waits(desk, waiting, 2)
        grant.report("what was sent")
        assert waiting.result(20) == "what was sent"
    assert follower(desk, attempt=3) == "what was sent"


def test_empty_receipts_are_receipts(desk: GrantDesk) -> None:
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS) as grant:
        grant.report("")
    assert follower(desk) == ""


def test_shares_are_granted_each_on_its_own(desk: GrantDesk) -> None:
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS), ask_for_share(desk.address, "round", 1, 2, []) as two:
        assert two.finished_receipts is None


def test_partitions_are_announced_once_for_each_share(desk: GrantDesk) -> None:
    announced: list[list[TopicPartition]] = []
    desk.open_round("round", announced.append)
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS) as grant:
        assert announced == [PARTITIONS]
        grant.report("x")
    follower(desk)
    assert announced == [PARTITIONS]


def test_an_owner_that_dies_is_noticed_by_those_who_wait(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    with ask_for_share(desk.address, "round", 0, 17, PARTITIONS):
        waiting = pool.submit(follower, desk)
        waits(desk, waiting, 2)
    with pytest.raises(ShareLostError, match="attempt 17, which was sending, ended without finishing"):
        waiting.result(20)
    with pytest.raises(ShareLostError, match="attempt 17"):
        follower(desk, attempt=18)


def test_why_an_owner_failed_is_told(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    """Spark reports the last of several attempts only: it must know what the first one died of."""

    def fail(waiting: list[Future[str | None]]) -> None:
        with ask_for_share(desk.address, "round", 0, 1, PARTITIONS):
            waiting.append(pool.submit(follower, desk))
            waits(desk, waiting[0], 2)
            raise UsageError("the record is too large")

    waiting: list[Future[str | None]] = []
    with pytest.raises(UsageError):
        fail(waiting)
    with pytest.raises(UsageError, match="share 0 of the micro-batch cannot be sent: the record is too large"):
        waiting[0].result(20)
    with pytest.raises(UsageError, match="the record is too large"):
        follower(desk, attempt=3, share=1)


def test_the_end_of_a_round_frees_those_who_wait(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS):
        waiting = pool.submit(follower, desk)
        waits(desk, waiting, 2)
        desk.open_round("next", lambda _: None)
        with pytest.raises(ShareLostError, match="this run of the micro-batch is over"):
            waiting.result(20)
    # The late end of an owner of the old round does not touch the same share of the new one.
    with ask_for_share(desk.address, "next", 0, 5, PARTITIONS) as grant:
        assert grant.finished_receipts is None


@pytest.mark.parametrize("asked", ["round", "", "another"])
def test_nothing_is_granted_between_rounds(desk: GrantDesk, asked: str) -> None:
    desk.close_round()
    with pytest.raises(ShareLostError, match="is over"), ask_for_share(desk.address, asked, 0, 1, PARTITIONS):
        pass


@pytest.mark.parametrize("error", [RetriableError("no coordinator"), AbortableError("expired"), RuntimeError("a bug")])
def test_partitions_that_cannot_be_announced(desk: GrantDesk, error: Exception) -> None:
    desk.open_round("round", failing(error))
    for share, attempt in ((0, 1), (0, 2), (1, 3)):
        with pytest.raises(ShareLostError, match=str(error)):
            follower(desk, attempt, share)
    desk.open_round("round", lambda _: None)
    assert follower(desk) is None


def test_a_mistake_of_the_user_stays_one(desk: GrantDesk) -> None:
    desk.open_round("round", failing(UsageError("grant WRITE on the topic")))
    with pytest.raises(UsageError, match="grant WRITE on the topic"):
        follower(desk)


def test_a_wrong_key_is_refused_and_harms_nobody(desk: GrantDesk) -> None:
    wrong = replace(desk.address, key=b"x" * 32)
    for _ in range(3):
        with pytest.raises(ShareLostError, match="could not be asked"), ask_for_share(wrong, "round", 0, 1, PARTITIONS):
            pass
    assert follower(desk) is None


def test_a_stranger_that_does_not_care_who_the_driver_is(desk: GrantDesk) -> None:
    """The attempt's own check of the driver must not be what keeps strangers out."""
    with socket.create_connection((desk.address.host, desk.address.port), 20) as stranger:
        assert len(stranger.recv(32, socket.MSG_WAITALL)) == 32
        question = json.dumps({"round": "round", "share": 0, "attempt": 1, "partitions": []}).encode()
        stranger.sendall(b"n" * 32 + b"p" * 32)
        with suppress(OSError):  # The driver may have hung up already.
            stranger.sendall(len(question).to_bytes(4, "big") + question)
        answered = b""
        with suppress(ConnectionError):
            answered = stranger.recv(100)
        assert answered == b""
    assert follower(desk) is None


def test_a_driver_without_the_key_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            peer, _ = impostor.accept()
            with peer:
                peer.sendall(b"n" * 32)
                peer.recv(64, socket.MSG_WAITALL)
                peer.sendall(b"p" * 32)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(ChannelError, match="does not know the key"):
            Channel.connect("127.0.0.1", impostor.getsockname()[1], b"k" * 32)
        thread.join()


def test_silent_peers_hold_up_nobody(desk: GrantDesk) -> None:
    where = (desk.address.host, desk.address.port)
    with socket.create_connection(where), socket.create_connection(where) as half:
        half.sendall(b"only a part of the proof")
        with Channel.connect(*where, desk.address.key):  # proves the key and asks nothing
            eventually(lambda: len(desk._serving) == 3)
            began = time.monotonic()
            assert follower(desk) is None
            assert time.monotonic() - began < 30


def test_silent_peers_are_sent_away(desk: GrantDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_channel, "HANDSHAKE_SECONDS", 1.0)
    monkeypatch.setattr(grant_desk, "MESSAGE_SECONDS", 1.0)
    where = (desk.address.host, desk.address.port)
    with socket.create_connection(where), Channel.connect(*where, desk.address.key):
        eventually(lambda: len(desk._serving) == 2)
        eventually(lambda: len(desk._serving) == 0)


@pytest.mark.parametrize(
    "message",
    [{"round": "round"}, {"round": "round", "tasks": 2}, {"round": "round", "share": 0, "attempt": 1, "partitions": 5}],
)
def test_nonsense_with_the_right_key(desk: GrantDesk, message: dict[str, object]) -> None:
    with Channel.connect(desk.address.host, desk.address.port, desk.address.key) as channel:
        channel.send(message, 5)
        with pytest.raises(ChannelError, match="closed"):
            channel.receive(20)
    assert follower(desk) is None


def test_a_message_that_is_none_of_ours(desk: GrantDesk) -> None:
    for data in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{]", b"\x00\x00\x00\x02[]"):
        with Channel.connect(desk.address.host, desk.address.port, desk.address.key) as channel:
            channel._write(data, Deadline.after(5))
            with pytest.raises(ChannelError):
                channel.receive(20)
    assert follower(desk) is None


def test_an_owner_that_leaves_before_its_answer(desk: GrantDesk) -> None:
    """It asks, and is gone when the driver has added its partitions: nobody may wait for it for ever."""
    arrived, go_on = threading.Event(), threading.Event()

    def slow(_: list[TopicPartition]) -> None:
        arrived.set()
        assert go_on.wait(20)

    desk.open_round("round", slow)
    with Channel.connect(desk.address.host, desk.address.port, desk.address.key) as channel:
        channel.send({"round": "round", "share": 0, "attempt": 1, "partitions": []}, 5)
        assert arrived.wait(20)
    go_on.set()
    with pytest.raises(ShareLostError, match="attempt 1"):
        follower(desk)


def test_a_slow_announcement_keeps_nobody_out(
    desk: GrantDesk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake is bounded, so it must not wait for the coordinator to answer another share."""
    monkeypatch.setattr(grant_channel, "HANDSHAKE_SECONDS", 2.0)
    arrived, go_on = threading.Event(), threading.Event()

    def slow(_: list[TopicPartition]) -> None:
        arrived.set()
        assert go_on.wait(20)

    desk.open_round("round", slow)
    first = pool.submit(owner, desk, 1, 0)
    assert arrived.wait(20)
    second = pool.submit(owner, desk, 2, 1)
    with pytest.raises(TimeoutError):
        second.result(3.0)
    go_on.set()
    assert first.result(20) is None
    assert second.result(20) is None


def test_a_hundred_attempts_at_once(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    shares, start = 10, threading.Barrier(100)
    sent: list[int] = []

    def attempt(number: int) -> str | None:
        start.wait()
        with ask_for_share(desk.address, "round", number % shares, number, PARTITIONS) as grant:
            if grant.finished_receipts is None:
                sent.append(number)
                grant.report(f"by {number}")
                return f"by {number}"
            return grant.finished_receipts

    given = [future.result(60) for future in [pool.submit(attempt, number) for number in range(100)]]
    assert len(sent) == shares
    owners = {number % shares: f"by {number}" for number in sent}
    assert given == [owners[number % shares] for number in range(100)]


def test_a_follower_hears_that_the_driver_lives(
    desk: GrantDesk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting may take longer than the longest silence that an attempt accepts."""
    monkeypatch.setattr(grant_round, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(grant_task, "ANSWER_SECONDS", 2.0)
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS) as grant:
        waiting = pool.submit(follower, desk)
        with pytest.raises(TimeoutError):
            waiting.result(3.0)
        grant.report("at last")
        assert waiting.result(20) == "at last"


def test_a_driver_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_channel, "HANDSHAKE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as stopped:  # connections are taken by the system, nobody answers
        address = GrantAddress("127.0.0.1", stopped.getsockname()[1], b"k" * 32)
        with pytest.raises(ShareLostError, match="silent for too long"), ask_for_share(address, "round", 0, 1, []):
            pass


def test_a_driver_that_is_gone(desk: GrantDesk, pool: ThreadPoolExecutor) -> None:
    with ask_for_share(desk.address, "round", 0, 1, PARTITIONS) as grant:
        waiting = pool.submit(follower, desk)
        waits(desk, waiting, 2)
        desk.close()
        assert desk_threads() == []
        with pytest.raises(ShareLostError):
            waiting.result(20)
        with pytest.raises(ShareLostError, match="cannot be told"):
            report_often(grant)
    with pytest.raises(ShareLostError, match="cannot be reached"):
        follower(desk)


def report_often(grant: Grant) -> None:
    """The first reports may still fit into the system's buffer."""
    for _ in range(1_000):
        grant.report("x" * 10_000)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot listen on"):
        GrantDesk("127.0.0.1", "127.0.0.1", taken.getsockname()[1])


def test_the_key_is_not_shown(desk: GrantDesk) -> None:
    assert "key" not in repr(desk.address)
