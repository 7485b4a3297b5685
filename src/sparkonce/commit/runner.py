"""One query's two-phase commit in the hands of its driver: prepare everywhere, decide once, commit everywhere.

Why nothing is lost and nothing doubled
---------------------------------------
Every run of a micro-batch has an epoch of its own, which is part of the name of each of its branches. The decision
holds (query, micro-batch, epoch) and nothing else, whatever the number of tasks. That is enough, by four rules:

1. One attempt per run. In one run at most one attempt of a Spark partition is permitted to write; the driver's grant
   desk sees to it. If that attempt is lost, prepared or not, the whole run is: it is never decided, and the micro-batch
   runs again under a new epoch. So all branches of a decided run are winners, and losers have another epoch.
2. Complete before decided. A decision is recorded only when the job has ended and every attempt that wrote has given
   its handle. So a branch of the decided run that a store does not list is committed, not missing.
3. Committed before the next. A run begins only when every branch of the last decision is committed. So one decision is
   all that must be remembered, and a leftover of an earlier micro-batch cannot be a winner.
4. One driver. To claim is to make sure that no other driver can record a decision any more. So a run that is neither
   decided nor ours can never be decided, and what it prepared may be rolled back.

Hence the fate of a leftover (`sweep.fates`):

    of another query, or not named by us    left alone
    of the run that is under way            left alone: it is being prepared
    of the decided run                      committed
    any other                               rolled back: it lost, and by 1, 3 and 4 it cannot win any more

The last line is for what a dead driver left, for lost attempts, and for zombies: a task that outlived its run may
prepare at any time, after every recovery. Nobody waits for it; it is swept before the next run, again and again.

A driver that was replaced may not know it yet. Its list of leftovers could show branches of its successor, which look
to it like "any other". So it lists first and then asks whether the claim is still its own: if so, all that was listed
is older than any successor. What the successor prepares later is not in the list.

A decision whose record is in doubt is neither committed nor aborted: claiming again tells. If the driver dies, the next
one claims, reads and sweeps. If a store is down, `commit` is retried until a deadline and then raises; the decision
stands, and rule 3 brings the commit back before anything else happens.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sparkonce.commit.branch import Run, query_digest, sink_digest
from sparkonce.commit.decision import Decision, DecisionStore, is_decided
from sparkonce.commit.participant import Handle, Participant
from sparkonce.commit.pending import PendingCommits
from sparkonce.commit.states import State, Step, after
from sparkonce.commit.sweep import Fates, fates, require_one_attempt
from sparkonce.deadline import Deadline, backoff_ms
from sparkonce.errors import AbortableError, FencedError, RetriableError, UsageError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

PATIENCE_MS = 60_000
"""How long a store that does not answer is asked again."""
_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 5_000


class TwoPhaseCommit:
    """Runs micro-batches over participants, one after the other. Not for two threads at a time."""

    def __init__(
        self,
        query_id: str,
        participants: Sequence[Participant],
        decisions: DecisionStore,
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self.query = query_digest(query_id)
        self._participants = by_digest(participants)
        self._decisions = decisions
        self._patience_ms = patience_ms
        self._state = State.UNCLAIMED
        self._last: Decision | None = None
        self._lost: FencedError | None = None
        self._run: Run | None = None
        self._pending = PendingCommits()

    @property
    def state(self) -> State:
        """Where the query stands."""
        return self._state

    @property
    def last_decision(self) -> Decision | None:
        """The last decided run; None before the first."""
        return self._last

    def recover(self) -> Decision | None:
        """Takes the query over and finishes what earlier drivers left. To be called at the start, and after doubt."""
        state = self._allowed(Step.CLAIM)
        self._last = self._guarded(self._decisions.claim)
        self._pending.drop()
        self._run = None
        self._patiently(self._sweep_once)
        self._state = state
        return self._last

    def is_decided(self, batch_id: int, offsets_digest: str = "") -> bool:
        """Whether the micro-batch is decided and committed already: then its output must be skipped."""
        self._require_recovered()
        if self._state is State.DECIDED:
            self.commit()
        return is_decided(self._last, batch_id, offsets_digest)

    def begin(self, batch_id: int) -> Run:
        """A new run of a micro-batch, after everything that is left of earlier ones is finished."""
        if self._state is State.DECIDED:
            self.commit()
        state = self._allowed(Step.BEGIN)
        self.sweep()
        self._run = Run(self.query, batch_id, self._guarded(self._decisions.new_epoch))
        self._state = state
        return self._run

    def decide(self, handles: Sequence[Handle], offsets_digest: str = "") -> None:
        """Records that the run is to be committed. `handles` are those of all its tasks that had rows.

        AbortableError: it is not recorded; `abort`, and the micro-batch may run again. FencedError: stop for good. Any
        other error: it may be recorded; only `recover` tells, here or in the next driver.
        """
        state = self._allowed(Step.DECIDE)
        run = self._run
        assert run is not None  # noqa: S101  The table allows DECIDE only in OPEN.
        self._require_complete(run, handles)
        decision = Decision(run.query, run.batch_id, run.epoch, offsets_digest)
        try:
            self._guarded(lambda: self._decisions.record(decision))
        except (AbortableError, FencedError):
            raise
        except BaseException:  # whatever else it is, the decision may be recorded
            self._state = after(self._state, Step.LOSE_ANSWER)
            raise
        for sink, participant in self._participants.items():
            self._pending.add(run.batch_id, participant, [handle for handle in handles if handle.branch.sink == sink])
        self._last, self._run, self._state = decision, None, state

    def commit(self) -> None:
        """Commits what is decided. If it raises, the decision stands: call it again, or `begin` will."""
        state = self._allowed(Step.COMMIT)
        if self._pending and self._last is not None:
            batch_id = self._last.batch_id
            self._patiently(lambda: self._pending.notify(batch_id))
        self._state = state

    def abort(self) -> None:
        """Ends the run without a decision and rolls back what its tasks prepared. What cannot be rolled back now will
        be by the next sweep, so a store that is down does not hide the error for which the run is aborted.
        """
        state = self._allowed(Step.ABORT)
        self._guarded(self._decisions.abandon)
        self._run, self._state = None, state
        try:
            self._sweep_once()
        except FencedError:
            raise
        except Exception as error:  # whatever it is, `begin` meets it again
            log.warning("branches of an aborted run are still prepared: %s", error)

    def sweep(self) -> None:
        """Commits or rolls back every leftover that the rules above allow. May be called whenever the query is ours."""
        self._require_recovered()
        self._patiently(self._sweep_once)

    def _sweep_once(self) -> None:
        first: Exception | None = None
        for participant in self._participants.values():
            try:
                self._finish_leftovers(participant)
            except FencedError:
                raise
            except Exception as error:  # whatever it is, the others must have their turn
                log.warning("sink %s could not be swept: %s", participant.name, error)
                first = first or error
        if first is not None:
            raise first

    def _finish_leftovers(self, participant: Participant) -> None:
        found = participant.in_doubt(self.query)
        if not found:
            return
        self._guarded(self._decisions.require_claim)  # after the listing: see the top of this file
        sorted_out: Fates = fates(found, self.query, self._last, self._run)
        if sorted_out.commit:
            participant.commit(sorted_out.commit)
        if sorted_out.abort:
            participant.abort(sorted_out.abort)
        for word, handles in (("committed", sorted_out.commit), ("rolled back", sorted_out.abort)):
            for handle in handles:
                log.info("%s the leftover %s in sink %s", word, handle.branch.name, participant.name)

    def _require_complete(self, run: Run, handles: Sequence[Handle]) -> None:
        for handle in handles:
            if not run.has(handle.branch) or handle.branch.sink not in self._participants:
                raise RuntimeError(f"{handle.branch.name} is not a branch of run {run}")
        require_one_attempt(handle.branch for handle in handles)

    def _allowed(self, step: Step) -> State:
        """The state after a step."""
        self._require_claim()
        return after(self._state, step)

    def _require_claim(self) -> None:
        """Whoever has lost the claim is told so again, whatever it tries."""
        if self._lost is not None:
            raise FencedError(str(self._lost), fault=self._lost.fault) from self._lost

    def _require_recovered(self) -> None:
        self._require_claim()
        if self._state in (State.UNCLAIMED, State.IN_DOUBT):
            raise RuntimeError(f"recover first: the state is {self._state.name}")

    def _guarded(self, action: Callable[[], Answer]) -> Answer:
        """Whoever loses the claim has lost it for good."""
        try:
            return action()
        except FencedError as error:
            self._state, self._lost = after(self._state, Step.LOSE_CLAIM), error
            raise

    def _patiently(self, action: Callable[[], None]) -> None:
        """Again, with pauses, while a store may come back and there is time."""
        until, attempt = Deadline.after_ms(self._patience_ms), 0
        while True:
            try:
                return action()
            except RetriableError as error:
                pause = backoff_ms(attempt, _FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, random.random()) / 1000  # noqa: S311
                if pause >= until.remaining_seconds:
                    raise
                log.info("asking again in %.1f s: %s", pause, error)
                time.sleep(pause)
                attempt += 1


def by_digest(participants: Sequence[Participant]) -> Mapping[str, Participant]:
    """Participants by the digest that is part of their branches' names."""
    named: dict[str, Participant] = {}
    for participant in participants:
        digest = sink_digest(participant.name)
        if digest in named:
            raise UsageError(
                f"two sinks of one query are called {participant.name!r}: give one of them another name=…, and keep it"
            )
        named[digest] = participant
    return named
