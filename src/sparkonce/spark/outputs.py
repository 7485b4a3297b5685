"""Where the rows of a micro-batch go: the seam between the loop that runs it and what it is written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from sparkonce.commit import Handle, Run
from sparkonce.errors import UsageError
from sparkonce.spark.grant_desk import GrantDesk

Select = Callable[[DataFrame], DataFrame] | Sequence[str] | None
"""What of a micro-batch an output gets: all of it, columns as SQL expressions, or what a function makes of it."""


def selected(rows: DataFrame, select: Select) -> DataFrame:
    """What an output gets."""
    if select is None:
        return rows
    if callable(select):
        chosen = select(rows)
        if not isinstance(chosen, DataFrame):
            raise UsageError(f"select must give a DataFrame, not {type(chosen).__name__}")
        return chosen
    return rows.selectExpr(*([select] if isinstance(select, str) else select))


class Output(ABC):
    """One sink of a query, in the driver."""

    @abstractmethod
    def check(self, rows: DataFrame) -> None:
        """Before any job: UsageError if it cannot take these rows."""

    @abstractmethod
    def prepare(self, rows: DataFrame, run: Run, desk: GrantDesk) -> list[Handle]:
        """Runs the job that brings the rows there, so that nothing but a decision is missing."""
