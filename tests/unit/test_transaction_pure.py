"""What a driver decides without a broker: states, marker, whether a batch is committed, whose epoch it is."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.errors import InDoubtError, MissingMarkerError, UsageError
from sparkonce.model import ProducerIdentity
from sparkonce.transaction import Candidate, Marker, Owner, State, is_committed, marker_group
from sparkonce.transaction.kafka_transaction import identity_to_raise, newest
from sparkonce.transaction.marker import format_marker, format_owner, owner_group, parse_marker, parse_owner
from sparkonce.transaction.states import TRANSITIONS, Step, after
from sparkonce.wire import TransactionDescription, TransactionProtocol

V1, V2 = TransactionProtocol.V1, TransactionProtocol.V2
HOUR_MS = 3_600_000

# States, written down a second time by hand.
LEGAL = {
    "UNCLAIMED": {"CLAIM": "CLAIMED", "LOSE_ID": "FENCED"},
    "CLAIMED": {"BEGIN": "OPEN", "ABORT": "CLAIMED", "LOSE_ID": "FENCED"},
    "OPEN": {"PRE_COMMIT": "PRE_COMMITTED", "ABORT": "CLAIMED", "LOSE_ID": "FENCED"},
    "PRE_COMMITTED": {"COMMIT": "CLAIMED", "ABORT": "CLAIMED", "LOSE_ANSWER": "IN_DOUBT", "LOSE_ID": "FENCED"},
    "IN_DOUBT": {"RESOLVE": "CLAIMED", "LOSE_ID": "FENCED"},
    "FENCED": {},
}


@pytest.mark.parametrize(("state", "step"), list(itertools.product(State, Step)))
def test_every_step_from_every_state(state: State, step: Step) -> None:
    expected = LEGAL[state.name].get(step.name)
    if expected is None:
        with pytest.raises(RuntimeError, match=f"{step.name} is not possible in the state {state.name}"):
            after(state, step)
    else:
        assert after(state, step) is State[expected]


def test_every_state_can_be_reached_and_only_fenced_is_final() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.UNCLAIMED}
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.FENCED}


# The marker.

owners = st.builds(Owner, st.text(max_size=60), st.integers(0, 2**31), st.text(max_size=60))
producers = st.builds(ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 32_767))
markers = st.builds(Marker, st.integers(0, 2**63 - 1), owners, producers, st.text(max_size=64))
MARKER = Marker(5, Owner("host", 12, "query"), ProducerIdentity(9, 3), "digest")


@given(markers)
def test_a_marker_comes_back_as_it_was(marker: Marker) -> None:
    assert parse_marker(format_marker(marker), "id") == marker


def test_a_marker_is_far_below_what_kafka_keeps() -> None:
    longest = Marker(2**63 - 1, Owner("h" * 255, 2**22, "q" * 36), ProducerIdentity(2**63 - 1, 32_767), "d" * 64)
    assert len(format_marker(longest).encode()) < 1_000


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_what_another_program_wrote_is_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"group sparkonce\.my-id holds offsets that sparkonce did not write"):
        parse_marker(text, "my-id")


@pytest.mark.parametrize("damage", ["batch_id", "owner", "producer", "offsets_digest"])
@pytest.mark.parametrize("value", [None, [], {}, {"host": 1}, "missing"])
def test_a_marker_with_a_damaged_field_is_not_ours(damage: str, value: object) -> None:
    fields = json.loads(format_marker(MARKER))
    fields[damage] = value
    if value == "missing" or (damage == "offsets_digest"):
        del fields[damage]
    with pytest.raises(UsageError, match="did not write"):
        parse_marker(json.dumps(fields), "my-id")


def test_a_newer_marker_is_refused() -> None:
    fields = json.loads(format_marker(MARKER)) | {"version": 2}
    with pytest.raises(UsageError, match="has version 2, this sparkonce knows 1"):
        parse_marker(json.dumps(fields), "my-id")


@given(owners)
def test_an_owner_comes_back_as_it_was(owner: Owner) -> None:
    assert parse_owner(format_owner(owner)) == owner


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"host": "h"}', '{"host":"h","process_id":[],"query_id":1}']
)
def test_what_is_no_owner_is_nobody(text: str) -> None:
    assert parse_owner(text) is None


def test_an_owner_is_named_in_full() -> None:
    assert str(Owner("node-7", 12, "abc")) == "process 12 on node-7, query abc"
    assert Owner.here("abc").query_id == "abc"


@given(st.text(), st.text())
def test_no_two_ids_share_a_group(one: str, other: str) -> None:
    assert marker_group(one) != owner_group(other)
    assert marker_group("x.owner") != owner_group("x")


# Whether a batch is committed.


def decide(
    marker: Marker | None,
    batch_id: int = 5,
    *,
    query_id: str = "query",
    digest: str = "digest",
    age_ms: int = 0,
    on_missing_marker: str = "stop",
) -> bool:
    return is_committed(
        marker,
        Candidate(query_id, batch_id, digest, age_ms),
        transactional_id="my-id",
        marker_life_ms=168 * HOUR_MS,
        on_missing_marker=on_missing_marker,
    )


@pytest.mark.parametrize("on_missing_marker", ["stop", "committed", "not-committed"])
@pytest.mark.parametrize("age_ms", [-5, 0, 168 * HOUR_MS - 1])
def test_a_young_batch_without_a_marker_is_not_committed(age_ms: int, on_missing_marker: str) -> None:
    assert decide(None, age_ms=age_ms, on_missing_marker=on_missing_marker) is False


def test_an_old_batch_without_a_marker_is_for_a_person_to_decide() -> None:
    with pytest.raises(
        MissingMarkerError, match=r"batch 5 of query query was planned 200 hours ago.*on_missing_marker"
    ):
        decide(None, age_ms=200 * HOUR_MS)
    with pytest.raises(InDoubtError):
        decide(None, age_ms=168 * HOUR_MS)
    assert decide(None, age_ms=200 * HOUR_MS, on_missing_marker="committed") is True
    assert decide(None, age_ms=200 * HOUR_MS, on_missing_marker="not-committed") is False


def test_the_marker_of_the_same_query() -> None:
    assert decide(MARKER, 6) is False
    assert decide(MARKER, 60) is False
    assert decide(MARKER, 5) is True
    assert decide(MARKER, 5, age_ms=1_000 * HOUR_MS) is True
    with pytest.raises(UsageError, match=r"about to run batch 4: it is older than the output"):
        decide(MARKER, 4)
    with pytest.raises(UsageError, match=r"about to run batch 5 with other offsets"):
        decide(MARKER, 5, digest="another")


def test_the_marker_of_another_query() -> None:
    assert decide(MARKER, 0, query_id="new") is False
    with pytest.raises(UsageError, match=r"last used by process 12 on host, query query for its batch 5.*of its own"):
        decide(MARKER, 1, query_id="copied")


# Whose epoch it is. HELD is what the driver has; the stored state is what the coordinator says.

HELD = ProducerIdentity(9, 4)
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def stored(producer_id: int, producer_epoch: int, state: str) -> TransactionDescription:
    return TransactionDescription("my-id", state, producer_id, producer_epoch, 60_000, -1, ())


@pytest.mark.parametrize("protocol", [V1, V2])
@pytest.mark.parametrize("state", STATES)
def test_an_epoch_that_did_not_move_is_ours(state: str, protocol: TransactionProtocol) -> None:
    assert identity_to_raise(HELD, stored(9, 4, state), protocol) == HELD


@pytest.mark.parametrize(
    ("state", "under_v1", "under_v2"),
    [
        ("Empty", HELD, HELD),
        ("Ongoing", None, None),
        ("PrepareAbort", ProducerIdentity(9, 5), ProducerIdentity(9, 5)),
        ("CompleteAbort", ProducerIdentity(9, 5), ProducerIdentity(9, 5)),
        ("PrepareCommit", None, ProducerIdentity(9, 5)),
        ("CompleteCommit", None, ProducerIdentity(9, 5)),
    ],
)
def test_one_epoch_further(state: str, under_v1: ProducerIdentity | None, under_v2: ProducerIdentity | None) -> None:
    assert identity_to_raise(HELD, stored(9, 5, state), V1) == under_v1
    assert identity_to_raise(HELD, stored(9, 5, state), V2) == under_v2


@pytest.mark.parametrize("protocol", [V1, V2])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("producer_id", "epoch"), [(9, 6), (9, 3), (9, 400), (10, 4), (10, 5), (10, 0)])
def test_any_other_identity_is_another_drivers(
    producer_id: int, epoch: int, state: str, protocol: TransactionProtocol
) -> None:
    assert identity_to_raise(HELD, stored(producer_id, epoch, state), protocol) is None


def test_at_the_last_epoch_the_broker_decides() -> None:
    last = ProducerIdentity(9, 32_766)
    assert identity_to_raise(last, stored(10, 0, "CompleteCommit"), V2) == last
    assert identity_to_raise(last, stored(9, 32_767, "CompleteAbort"), V1) == ProducerIdentity(9, 32_767)


def test_the_newest_of_several_markers() -> None:
    old, middle, new = (
        Marker(batch_id, MARKER.owner, ProducerIdentity(*producer), "d")
        for batch_id, producer in ((9, (3, 32_000)), (7, (4, 1)), (0, (4, 5)))
    )
    assert newest([], 4) is None
    assert newest([old], 4) == old
    assert newest([new, old, middle], 4) == new
    assert newest([old, middle], 4) == middle
