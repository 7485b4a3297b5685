"""Transactions as they are shown: ages, owners, what hangs. Golden texts."""

from __future__ import annotations

import os
import socket
from textwrap import dedent

import pytest

from sparkonce.cli.lag import lag_text
from sparkonce.cli.offsets import positions_text
from sparkonce.cli.transactions import (
    aborted_text,
    description_text,
    hanging_text,
    overview_record,
    overview_text,
    warning_text,
)
from sparkonce.errors import UsageError
from sparkonce.model import ProducerIdentity, TopicPartition
from sparkonce.ops.aborting import Aborted, require_abortable
from sparkonce.ops.lag import Lag, PartitionLag
from sparkonce.ops.life import change_signs, transaction_signs
from sparkonce.ops.offsets import Position, Positions
from sparkonce.ops.owners import Claim, claimed_ids, lives_here
from sparkonce.ops.tables import WIDTH, duration, table, wrapped
from sparkonce.ops.transactions import (
    Hanging,
    KnownTransaction,
    OpenRange,
    Overview,
    matching,
    open_ranges,
    unknown_ranges,
)
from sparkonce.transaction import Marker, Owner
from sparkonce.wire import ProducerState, TransactionDescription
from sparkonce.wire.diagnosis import GroupListing, Operation, operations_of

NOW = 1_800_000_000_000
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OWNER = Owner("host-a", 4711, "q-1")


def known(name: str, state: str = "Empty", open_ms: int | None = None, claim: Claim | None = None) -> KnownTransaction:
    started = -1 if open_ms is None else NOW - open_ms
    partitions = () if open_ms is None else (A0, A1)
    return KnownTransaction(TransactionDescription(name, state, 12, 4, 60_000, started, partitions), claim or Claim())


def ours(batch_id: int = 17) -> Claim:
    return Claim(OWNER, Marker(batch_id, OWNER, ProducerIdentity(12, 3), "d"), A0)


HANGING = Hanging(OpenRange(A1, 99, 0, 1234, NOW), None)


def test_the_list() -> None:
    found = Overview(
        NOW,
        (
            known("big-orders", "Ongoing", 3_000, ours()),
            known("late", "Ongoing", 65_000),
            known("other-app", "CompleteCommit"),
            known("stuck", "Ongoing", 3_600_000),
        ),
        (HANGING,),
        ("secret",),
    )
    text = overview_text(found, list(found.transactions))
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    lines = text.splitlines()
    assert lines[1].split() == ["big-orders", "Ongoing", "12/4", "3", "s", "of", "1", "min", "2", "17", "4711@host-a"]
    assert "late is open for 5 s longer than its timeout; the broker aborts it within seconds." in text
    assert "stuck HANGS: it is open for 59 min longer than its timeout" in text
    assert "sparkonce transactions abort stuck" in " ".join(text.split())
    assert "a-1 HANGS at offset 1,234: a transaction of producer 99, which has no id" in " ".join(text.split())
    assert "Not looked at, for lack of READ: secret." in text
    assert found.has_problems
    record = overview_record(found, list(found.transactions))
    assert [one["hangs"] for one in record["transactions"]] == [False, False, False, True]
    assert record["hanging"][0]["start_offset"] == 1234


def test_the_table_of_the_list() -> None:
    found = Overview(NOW, (known("big-orders", "Ongoing", 3_000, ours()), known("other-app", "CompleteCommit")))
    assert overview_text(found, list(found.transactions)) == dedent("""\
        TRANSACTIONAL ID  STATE           PRODUCER  OPEN FOR      PARTITIONS  BATCH  OWNER
        big-orders        Ongoing         12/4      3 s of 1 min           2     17  4711@host-a
        other-app         CompleteCommit  12/4      -                      0      -  not sparkonce""")
    assert not found.has_problems
    assert overview_text(Overview(NOW, ()), []) == "No transactional ids."


def test_one_transaction() -> None:
    assert description_text(known("big-orders", "Ongoing", 65_000, ours()), NOW) == dedent("""\
        big-orders
          state       Ongoing
          producer    id 12, epoch 4
          timeout     1 min
          open        for 1 min 5 s, since 2027-01-15 07:58:55 UTC, 5 s longer than allowed
          owner       process 4711 on host-a, query q-1
          committed   batch 17 of query q-1
          partitions  2
            a-0
            a-1""")
    assert "owner       not sparkonce" in description_text(known("x"), NOW)
    assert "partitions  none" in description_text(known("x"), NOW)


def test_a_hanging_transaction_names_the_tool_that_ends_it() -> None:
    text = hanging_text(HANGING)
    assert text.splitlines()[-1] == (
        "    kafka-transactions.sh --bootstrap-server … abort --topic a --partition 1 --start-offset 1234"
    )


def test_what_abort_says() -> None:
    one = known("big-orders", "Ongoing", 3_000, ours())
    assert "stops with FencedError" in warning_text(one)
    assert "process 4711 on host-a" in warning_text(one)
    done = Aborted(one, known("big-orders", claim=ours()), ProducerIdentity(12, 6), ())
    assert aborted_text(done) == (
        "The transaction of big-orders is aborted; read_committed readers see nothing of it. The id is at producer 12, "
        "epoch 6. The last committed batch is 17, as before."
    )
    raced = Aborted(one, known("big-orders", claim=ours(18)), ProducerIdentity(12, 6), ())
    assert "Batch 18 was committed in the moment before." in aborted_text(raced)
    open_still = Aborted(one, one, ProducerIdentity(12, 6), (HANGING.range,))
    assert "still open: a-1 at offset 1234" in aborted_text(open_still)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Empty", "no transaction is open"),
        ("CompleteCommit", "no transaction is open"),
        ("PrepareCommit", "is being committed by the broker already"),
        ("PrepareAbort", "is being aborted by the broker already"),
    ],
)
def test_nothing_to_abort(state: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        require_abortable(known("x", state, 1_000))


def test_patterns() -> None:
    names = ["orders-1", "orders-2", "payments"]
    assert matching(names, None) == names
    assert matching(names, "ord") == ["orders-1", "orders-2"]
    assert matching(names, "*2") == ["orders-2"]
    assert matching(names, "*") == names


def test_what_only_a_partition_has_open_hangs() -> None:
    def state(producer_id: int, start: int) -> ProducerState:
        return ProducerState(producer_id, 0, 5, NOW, 0, start)

    found = open_ranges({A0: [state(1, 10), state(2, -1)], A1: [state(1, 20), state(3, 30)]})
    assert [(one.topic_partition, one.producer_id) for one in found] == [(A0, 1), (A1, 1), (A1, 3)]
    described = [
        TransactionDescription("one", "Ongoing", 1, 0, 1, NOW, (A0,)),
        TransactionDescription("three", "CompleteAbort", 3, 0, 1, -1, (A1,)),
    ]
    assert [(one.topic_partition, one.producer_id) for one in unknown_ranges(found, described)] == [(A1, 1), (A1, 3)]


def test_ids_are_found_by_the_names_of_groups() -> None:
    assert claimed_ids(["sparkonce.x", "sparkonce-owner.x.owner", "other"]) == {"x", "x.owner"}


def test_owners_of_this_host() -> None:
    here = socket.gethostname()
    assert lives_here(Owner(here, os.getppid(), "q"))
    assert not lives_here(Owner(here, os.getpid(), "q"))
    assert not lives_here(Owner("elsewhere", os.getppid(), "q"))
    assert not lives_here(Owner(here, 2**22 + 1, "q"))
    assert not lives_here(None)


def test_signs_of_life() -> None:
    alive = Claim(Owner(socket.gethostname(), os.getppid(), "q"))
    assert transaction_signs(None, owner_gone=False) == []
    assert transaction_signs(known("x", claim=ours()), owner_gone=False) == []
    (sign,) = transaction_signs(known("x", claim=alive), owner_gone=False)
    assert "--owner-gone" in sign
    assert transaction_signs(known("x", claim=alive), owner_gone=True) == []
    (sign,) = transaction_signs(known("x", "Ongoing", 1, claim=alive), owner_gone=True)
    assert "a transaction is open under x" in sign
    assert change_signs(((1, 1), (7, 3)), ((1, 1), (7, 3)), 3) == []
    assert change_signs(((1, 1), (7, 3)), ((2, 1), (7, 4)), 3) == [
        "the checkpoint changed within 3 seconds",
        "the epoch of the transactional id changed within 3 seconds",
    ]


def test_members_and_operations() -> None:
    assert GroupListing("g", "Stable", 0).has_members
    assert not GroupListing("g", "Empty", 0).has_members
    assert operations_of(None) is None
    assert operations_of({3, 8, 99}) == frozenset({Operation.READ, Operation.DESCRIBE})


def lag_of(partition: int, current: int | None, end: int, behind_ms: int | None = None) -> PartitionLag:
    return PartitionLag(
        topic_partition=TopicPartition("orders", partition),
        current=current,
        earliest=50,
        end=end,
        groups={"shown": 90} if partition == 0 else {},
        behind_ms=behind_ms,
    )


def test_the_lag() -> None:
    found = Lag(
        partitions=(lag_of(0, 100, 1_100, 65_000), lag_of(1, 20, 60), lag_of(2, 70, 70), lag_of(3, None, 60)),
        basis="batch 17, the newest that Spark has committed",
        batch_id=17,
        unfinished=18,
    )
    assert lag_text(found) == dedent("""\
        PARTITION  CURRENT  GROUP shown    END    LAG     BEHIND
        orders-0       100           90  1,100  1,000  1 min 5 s
        orders-1        20            -     60     10          -
        orders-2        70            -     70      0          0
        orders-3         -            -     60      -          -

        CURRENT is from batch 17, the newest that Spark has committed.
        Batch 18 is planned and not committed: running now, or run at the next start.
        30 offsets were deleted by retention before they were read.
        In all: 1,010 offsets, the oldest record is 1 min 5 s old.""")


def test_the_offsets() -> None:
    found = Positions((Position(A0, 40, {"g": 30}, 5, 50), Position(A1, None, {}, 0, 500)), "The next start begins.")
    assert positions_text(found) == dedent("""\
        PARTITION  NEXT START  GROUP g  EARLIEST  LATEST
        a-0                40       30         5      50
        a-1                 -        -         0     500

        The next start begins.""")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (1_000, "1 s"),
        (12_340, "12.3 s"),
        (60_000, "1 min"),
        (245_000, "4 min 5 s"),
        (7_380_000, "2 h 3 min"),
        (604_800_000, "7 d"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_tables_and_wrapping() -> None:
    assert (
        table(["A", "NUMBER"], [["x", 1], ["long", 20]], right=["NUMBER"]) == "A     NUMBER\nx          1\nlong      20"
    )
    assert wrapped("one two three", 2, 10) == "one two\n  three"
    assert wrapped("first\nsecond", 2) == "first\n  second"
