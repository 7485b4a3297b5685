"""The states of a query's two-phase commit in its driver's hands, as a table.

- A run that is DECIDED stays so until every branch is committed: no other run begins before that (see `runner`).
- IN_DOUBT is left by claiming again, which reads the decision. Nothing else may be done meanwhile, above all no abort.
- FENCED is final.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """Where the query stands."""

    UNCLAIMED = auto()
    """Another driver may be running it."""
    IDLE = auto()
    """Ours, and nothing is pending."""
    OPEN = auto()
    """Tasks may write and prepare."""
    DECIDED = auto()
    """The decision is recorded; some branches may not be committed yet."""
    IN_DOUBT = auto()
    """The decision is recorded, or not: the answer is missing."""
    FENCED = auto()
    """Another driver has it."""


class Step(Enum):
    """What happens to it."""

    CLAIM = auto()
    BEGIN = auto()
    DECIDE = auto()
    LOSE_ANSWER = auto()
    COMMIT = auto()
    ABORT = auto()
    LOSE_CLAIM = auto()


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.UNCLAIMED, Step.CLAIM): State.IDLE,
    (State.IN_DOUBT, Step.CLAIM): State.IDLE,
    (State.IDLE, Step.BEGIN): State.OPEN,
    (State.OPEN, Step.DECIDE): State.DECIDED,
    (State.OPEN, Step.LOSE_ANSWER): State.IN_DOUBT,
    (State.OPEN, Step.ABORT): State.IDLE,
    (State.IDLE, Step.ABORT): State.IDLE,
    (State.DECIDED, Step.COMMIT): State.IDLE,
    (State.IDLE, Step.COMMIT): State.IDLE,
    **{(state, Step.LOSE_CLAIM): State.FENCED for state in State},
}


def after(state: State, step: Step) -> State:
    """The state that follows; a step that the table does not have is a mistake of the caller."""
    if (state, step) not in TRANSITIONS:
        raise RuntimeError(f"{step.name} is not possible in the state {state.name}")
    return TRANSITIONS[state, step]
