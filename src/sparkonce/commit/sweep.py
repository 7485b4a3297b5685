"""Leftovers: what becomes of a prepared branch that was found in a store. Pure; the rules are argued in `runner`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkonce.commit.branch import Branch, Run
from sparkonce.commit.decision import Decision
from sparkonce.commit.participant import Handle
from sparkonce.errors import InDoubtError


@dataclass(frozen=True, slots=True)
class Fates:
    """Leftovers by what is to be done about them."""

    commit: tuple[Handle, ...]
    abort: tuple[Handle, ...]


def fates(found: Iterable[Handle], query: str, last: Decision | None, running: Run | None) -> Fates:
    """Sorts leftovers. What belongs to another query, or to the run that is under way, is left alone."""
    ours = [handle for handle in found if handle.branch.query == query]
    idle = sorted(
        (handle for handle in ours if running is None or not running.has(handle.branch)), key=lambda h: h.branch
    )
    winners = [handle for handle in idle if last is not None and last.chose(handle.branch)]
    require_one_attempt(handle.branch for handle in winners)
    return Fates(tuple(winners), tuple(handle for handle in idle if handle not in winners))


def require_one_attempt(branches: Iterable[Branch]) -> None:
    """In one run, one attempt prepares a Spark partition. Two mean that nobody can tell which rows count."""
    seen: dict[tuple[str, int], Branch] = {}
    for branch in branches:
        other = seen.setdefault((branch.sink, branch.partition), branch)
        if other != branch:
            raise InDoubtError(
                f"two attempts prepared Spark partition {branch.partition} in one run of batch {branch.batch_id}: "
                f"{other.name} and {branch.name}. Neither is touched. Compare their rows, roll one of them back in the "
                f"store, and start again"
            )
