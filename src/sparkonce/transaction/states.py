"""The states of a transactional id in its driver's hands, as a table.

The steps are those of two-phase commit: begin, write (in tasks), pre-commit, commit or abort. The rules behind them:

- Only a commit can be in doubt. Nothing but the marker decides it, so IN_DOUBT leads to CLAIMED by way of `resolve`, or
  to FENCED; never back.
- Aborting when nothing is open is harmless: the broker may have aborted before us.
- FENCED is final: a driver that was replaced never takes the id back.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """Where the transactional id stands."""

    UNCLAIMED = auto()
    """Not ours yet: another driver's transaction may be open under it."""
    CLAIMED = auto()
    """Ours, no transaction is open."""
    OPEN = auto()
    """Tasks may write."""
    PRE_COMMITTED = auto()
    """Everything is in the transaction, the offsets and the marker too."""
    IN_DOUBT = auto()
    """It is committed, or not: the answer is missing."""
    FENCED = auto()
    """Another driver has it."""


class Step(Enum):
    """What happens to it."""

    CLAIM = auto()
    BEGIN = auto()
    PRE_COMMIT = auto()
    COMMIT = auto()
    ABORT = auto()
    LOSE_ANSWER = auto()
    RESOLVE = auto()
    LOSE_ID = auto()


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.UNCLAIMED, Step.CLAIM): State.CLAIMED,
    (State.CLAIMED, Step.BEGIN): State.OPEN,
    (State.OPEN, Step.PRE_COMMIT): State.PRE_COMMITTED,
    (State.PRE_COMMITTED, Step.COMMIT): State.CLAIMED,
    (State.CLAIMED, Step.ABORT): State.CLAIMED,
    (State.OPEN, Step.ABORT): State.CLAIMED,
    (State.PRE_COMMITTED, Step.ABORT): State.CLAIMED,
    (State.PRE_COMMITTED, Step.LOSE_ANSWER): State.IN_DOUBT,
    (State.IN_DOUBT, Step.RESOLVE): State.CLAIMED,
    (State.UNCLAIMED, Step.LOSE_ID): State.FENCED,
    (State.CLAIMED, Step.LOSE_ID): State.FENCED,
    (State.OPEN, Step.LOSE_ID): State.FENCED,
    (State.PRE_COMMITTED, Step.LOSE_ID): State.FENCED,
    (State.IN_DOUBT, Step.LOSE_ID): State.FENCED,
}


def after(state: State, step: Step) -> State:
    """The state that follows; a step that the table does not have is a mistake of the caller."""
    if (state, step) not in TRANSITIONS:
        raise RuntimeError(f"{step.name} is not possible in the state {state.name}")
    return TRANSITIONS[state, step]
