"""One transactional id in the hands of a driver: claim it, then one transaction after the other, each under a fresh
producer epoch. Tasks write under the identity that `begin` gives; everything else happens here.

How the id is kept, and how it is never taken back
--------------------------------------------------
The coordinator stores one epoch per id, and who may raise it (read in Kafka's `TransactionCoordinator`, tried on 4.3
with both transaction protocols, V1 and V2). Let e be the epoch that this driver holds:

    what happens                                             stored epoch   state
    InitProducerId without an identity: another driver       +1             Empty
    InitProducerId with the identity that is stored: ours    +1             Empty
    either of them while a transaction is open, or expiry    +1             PrepareAbort, CompleteAbort
    EndTxn under V1                                          +0             Prepare…, Complete…
    EndTxn under V2                                          +1             Prepare…, Complete…

So after an expiry, or a lost answer, the stored epoch may be e + 1 without another driver, and InitProducerId with e
may answer "fenced" (under V1 always, under V2 after the coordinator moved). To ask with e + 1 instead is right only if
nobody was given e + 1. A driver that takes over is given e + 1 if no transaction was open. Two rules tell it apart:

1. `claim` raises the epoch twice, so no transaction ever runs under the epoch that a takeover gave.
2. e + 1 is ours only if the stored state is the end of a transaction. By rule 1 that can only be the transaction of e:
   under V1 its abort by the broker, under V2 any end. After a takeover the state at e + 1 is Empty.

Between looking and asking another driver may come: then the stored epoch is higher, and the coordinator refuses us.
It also refuses an epoch that is too low, with one exception: while a transaction is open, InitProducerId with any epoch
aborts it first. Therefore we look before we ask, always: a driver that was replaced must not abort its successor.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sparkonce.deadline import Deadline
from sparkonce.errors import AbortableError, FencedError, InDoubtError, SparkonceError, UsageError
from sparkonce.model import NO_PRODUCER, ProducerIdentity, TopicPartition
from sparkonce.transaction.marker import (
    Marker,
    Owner,
    format_marker,
    format_owner,
    marker_group,
    owner_group,
    parse_marker,
    parse_owner,
)
from sparkonce.transaction.states import State, Step, after
from sparkonce.wire import (
    Client,
    GroupOffset,
    TransactionDescription,
    TransactionProtocol,
    add_offsets,
    add_partitions,
    commit_offsets,
    commit_offsets_in_transaction,
    committed_offsets,
    describe_transaction,
    end_transaction,
    init_producer,
)

_ABORTED = frozenset({"PrepareAbort", "CompleteAbort"})
_ENDED = {
    TransactionProtocol.V1: _ABORTED,
    TransactionProtocol.V2: _ABORTED | {"PrepareCommit", "CompleteCommit"},
}
_ID_UNKNOWN = 105
_LAST_EPOCH = 32_766
"""After this epoch the broker goes on with another producer id; it knows which one was before."""
_OWNER_NAME_MS = 5_000
_MARKERS_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """What stays the same for all transactions of a query."""

    transactional_id: str
    marker_home: TopicPartition
    """The topic partition under which the marker's offset is kept; it must exist."""
    owner: Owner


class KafkaTransaction:
    """A transactional id and the transaction that is open under it, if one is. Not for two threads at a time."""

    def __init__(self, client: Client, settings: TransactionSettings) -> None:
        self.settings = settings
        self._client = client
        self._state = State.UNCLAIMED
        self._identity = NO_PRODUCER
        self._epoch_is_fresh = False
        self._timeout_ms = 0
        self._opened_at = 0.0
        self._marker: Marker | None = None
        self._lost: FencedError | None = None

    @property
    def state(self) -> State:
        """Where the id stands."""
        return self._state

    @property
    def protocol(self) -> TransactionProtocol:
        """Which transaction protocol the cluster speaks."""
        return self._client.transaction_protocol()

    @property
    def open_seconds(self) -> float:
        """How long ago the transaction began."""
        return time.monotonic() - self._opened_at

    def claim(self, timeout_ms: int) -> Marker | None:
        """Takes the id over from whoever had it, and gives the marker of the last committed batch.

        An open transaction of the former owner is aborted before the answer comes, so the marker is final.
        """
        state = self._allowed(Step.CLAIM)
        # First the name, so that the driver that is replaced always finds it.
        announced = GroupOffset(0, format_owner(self.settings.owner))
        group = owner_group(self.settings.transactional_id)
        commit_offsets(self._client, group, {self.settings.marker_home: announced})
        self._identity = init_producer(self._client, self.settings.transactional_id, timeout_ms)
        self._raise_epoch(timeout_ms, self._client.deadline())  # rule 1 above
        marker = self._newest_marker()
        self._state = state
        return marker

    def begin(self, timeout_ms: int) -> ProducerIdentity:
        """Opens a transaction under an epoch that no earlier one had."""
        state = self._allowed(Step.BEGIN)
        if not self._epoch_is_fresh or timeout_ms != self._timeout_ms:
            self._raise_epoch(timeout_ms, self._client.deadline())
        self._epoch_is_fresh, self._marker = False, None
        self._opened_at = time.monotonic()
        self._state = state
        return self._identity

    def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Announces partitions before their first record. Under V2 the records themselves do that.

        It changes nothing here, so it may be called from another thread while the driver's waits for its job. Whether a
        refusal means an expiry or another driver is found out by `abort`.
        """
        if self.protocol is not TransactionProtocol.V1 or not partitions:
            return
        try:
            add_partitions(self._client, self.settings.transactional_id, self._identity, partitions)
        except FencedError as error:
            raise AbortableError(str(error), fault=error.fault) from error

    def pre_commit(self, marker: Marker, offsets: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> None:
        """Puts the source's offsets, by group, and the batch's marker into the transaction.

        Raises FencedError if the id was lost, and AbortableError if only the transaction was.
        """
        state = self._allowed(Step.PRE_COMMIT)
        own_group = marker_group(self.settings.transactional_id)
        own = {self.settings.marker_home: GroupOffset(marker.batch_id, format_marker(marker))}
        try:
            for group, values in {**offsets, own_group: own}.items():
                self._commit_group(group, values)
        except FencedError as error:
            self._raise_epoch(self._timeout_ms, self._client.deadline())
            self._state = after(self._state, Step.ABORT)
            raise AbortableError(
                f"the broker aborted the transaction of {self.settings.transactional_id}, which may be open for "
                f"{self._timeout_ms:,} ms; nothing of it is visible",
                fault=error.fault,
            ) from error
        self._marker = marker
        self._state = state

    def commit(self) -> bool:
        """Ends the transaction. False means that it was aborted, for instance because it expired: nothing of it is
        visible. Raises FencedError if the id was lost, and InDoubtError if the broker cannot be asked what happened.
        """
        state = self._allowed(Step.COMMIT)
        try:
            self._end(commit=True)
        except (AbortableError, FencedError, InDoubtError) as error:
            return self._resolve(error)
        self._state = state
        return True

    def abort(self) -> None:
        """Makes sure that nothing of the open transaction, if there is one, will ever be visible."""
        state = self._allowed(Step.ABORT)
        if self._state is State.CLAIMED:
            return
        try:
            self._end(commit=False)
        except (AbortableError, FencedError, InDoubtError):
            # The broker was first, or the answer is missing. Raising the epoch aborts what is open.
            self._raise_epoch(self._timeout_ms, self._client.deadline())
        self._state = state

    def require_id(self) -> None:
        """Raises FencedError if another driver has taken the id over."""
        self._allowed(Step.ABORT)
        until = self._client.deadline()
        stored = self._stored(until)
        if stored is None or ProducerIdentity(stored.producer_id, stored.producer_epoch) != self._identity:
            self._raise_epoch(self._timeout_ms, until)

    def wait_for_readers(self) -> None:
        """After `commit`: until the brokers have written all their markers, so that readers see the whole of it."""
        until = self._client.deadline()
        while (stored := self._stored(until)) is not None and stored.state == "PrepareCommit":
            self._client.connections.pause(_MARKERS_PAUSE_SECONDS)

    def read_marker(self, deadline: Deadline | None = None) -> Marker | None:
        """The marker of the last committed batch; waits while a transaction is about to change it."""
        transactional_id, home = self.settings.transactional_id, self.settings.marker_home
        found = committed_offsets(self._client, marker_group(transactional_id), [home], deadline)
        return parse_marker(found[home].metadata, transactional_id) if home in found else None

    def _newest_marker(self) -> Marker | None:
        """The marker, wherever an earlier driver kept it: its home may have been another topic. All that the group has
        is asked for; that is final only because no transaction is open.
        """
        transactional_id = self.settings.transactional_id
        found = committed_offsets(self._client, marker_group(transactional_id))
        markers = [parse_marker(offset.metadata, transactional_id) for offset in found.values()]
        return newest(markers, self._identity.producer_id)

    def _allowed(self, step: Step) -> State:
        """The state after a step; whoever has lost the id is told so again, whatever it tries."""
        if self._lost is not None:
            raise FencedError(str(self._lost), fault=self._lost.fault) from self._lost
        return after(self._state, step)

    def _commit_group(self, group: str, values: Mapping[TopicPartition, GroupOffset]) -> None:
        if not values:
            return
        if self.protocol is TransactionProtocol.V1:
            add_offsets(self._client, self.settings.transactional_id, self._identity, group)
        commit_offsets_in_transaction(self._client, self.settings.transactional_id, self._identity, group, values)

    def _end(self, *, commit: bool) -> None:
        identity = end_transaction(self._client, self.settings.transactional_id, self._identity, commit=commit)
        self._epoch_is_fresh = identity != self._identity
        self._identity = identity

    def _resolve(self, cause: SparkonceError) -> bool:
        """Whether the batch is committed, when the answer did not say so: raise the epoch, then read the marker."""
        self._state = after(self._state, Step.LOSE_ANSWER)
        until = self._client.deadline()
        try:
            self._raise_epoch(self._timeout_ms, until)
            found = self.read_marker(until)
        except FencedError:
            raise
        except SparkonceError as error:
            raise InDoubtError(
                f"{cause}. Whether the micro-batch is committed could not be found out: {error}. "
                f"Nothing is lost: when the query is started again, its marker decides",
                fault=cause.fault,
            ) from error
        self._state = after(self._state, Step.RESOLVE)
        # Since begin nobody else held the id, so the marker is that of this transaction or an older one.
        return found is not None and found == self._marker

    def _raise_epoch(self, timeout_ms: int, until: Deadline) -> None:
        """Gets a fresh epoch if the id is still ours, and ends what is open under it. See the top of this file.

        Two rounds: the first may itself abort our open transaction, after which the stored epoch is one higher.
        """
        transactional_id = self.settings.transactional_id
        cause: FencedError | None = None
        for _ in range(2):
            held = self._identity_to_raise(until)
            if held is None:
                break
            try:
                self._identity = init_producer(self._client, transactional_id, timeout_ms, held, until)
            except FencedError as error:
                cause = error
                continue
            self._epoch_is_fresh, self._timeout_ms = True, timeout_ms
            return
        self._lose_id(cause)

    def _identity_to_raise(self, until: Deadline) -> ProducerIdentity | None:
        """The identity with which to ask for the next epoch; None if another driver has the id."""
        stored = self._stored(until)
        return self._identity if stored is None else identity_to_raise(self._identity, stored, self.protocol)

    def _stored(self, until: Deadline) -> TransactionDescription | None:
        """What the coordinator has; None if nothing was committed for so long that it forgot the id
        (transactional.id.expiration.ms).
        """
        try:
            return describe_transaction(self._client, self.settings.transactional_id, until)
        except UsageError as error:
            if error.fault is None or error.fault.code != _ID_UNKNOWN:
                raise
            return None

    def _lose_id(self, cause: FencedError | None) -> NoReturn:
        self._state = after(self._state, Step.LOSE_ID)
        transactional_id = self.settings.transactional_id
        self._lost = FencedError(
            f"transactional id {transactional_id} was taken over by {self._new_owner()}; this query "
            f"({self.settings.owner}) stops and has written nothing since. Run one query per transactional id",
            fault=cause.fault if cause else None,
        )
        raise self._lost from cause

    def _new_owner(self) -> str:
        home, until = self.settings.marker_home, Deadline.after_ms(_OWNER_NAME_MS)
        try:
            found = committed_offsets(self._client, owner_group(self.settings.transactional_id), [home], until)
            owner = parse_owner(found[home].metadata) if home in found else None
        except SparkonceError:
            owner = None
        if owner == self.settings.owner:
            return "another run of the same query in this process, or another program"
        return str(owner) if owner else "another process that did not leave its name"


def identity_to_raise(
    held: ProducerIdentity, stored: TransactionDescription, protocol: TransactionProtocol
) -> ProducerIdentity | None:
    """Pure: from what we hold and what the coordinator stores to what to ask with; None if the id is not ours."""
    current = ProducerIdentity(stored.producer_id, stored.producer_epoch)
    if current == held:
        return held
    if current != ProducerIdentity(held.producer_id, held.producer_epoch + 1):
        return held if held.producer_epoch >= _LAST_EPOCH else None
    if stored.state in _ENDED[protocol]:
        return current
    # Empty is what a takeover leaves, but also our own request to raise the epoch whose answer was lost: the
    # coordinator knows the difference (KIP-360).
    return held if stored.state == "Empty" else None


def newest(markers: Collection[Marker], producer_id: int) -> Marker | None:
    """The last one of several. The epoch rises with every transaction; when it is used up, the producer id changes."""
    return max(
        markers,
        key=lambda marker: (marker.producer.producer_id == producer_id, marker.producer.producer_epoch),
        default=None,
    )
