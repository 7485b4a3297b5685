"""A store of one's own, and all that it takes to write it exactly once: rows wait in `staged` until they count."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparkonce.commit import Branch, BranchWriter, Handle, Participant, leftovers

MOVE = "INSERT INTO {} SELECT value->>0, value->>1 FROM staged, json_each(rows) WHERE branch = ?"
FORGET = "DELETE FROM staged WHERE branch = ?"


@dataclass(frozen=True)
class SqliteParticipant(Participant):
    path: str
    table: str

    @property
    def name(self) -> str:
        return f"sqlite {self.table}"

    def begin(self, branch: Branch, schema: pa.Schema) -> BranchWriter:
        return Staging(self, branch)

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            self.execute(MOVE, FORGET, values=[handle.branch.name])

    def abort(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            self.execute(FORGET, values=[handle.branch.name])

    def in_doubt(self, query: str) -> list[Handle]:
        return leftovers((row[0] for row in self.execute("SELECT branch FROM staged WHERE target = '{}'")), query)

    def execute(self, *statements: str, values: Sequence[str] = ()) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return [row for text in statements for row in connection.execute(text.format(self.table), values)]


class Staging(BranchWriter):
    def __init__(self, sink: SqliteParticipant, branch: Branch) -> None:
        self.sink, self.branch, self.rows = sink, branch, list[list[Any]]()

    def write(self, arrow_batch: pa.RecordBatch) -> None:
        self.rows += [list(row.values()) for row in arrow_batch.to_pylist()]

    def pre_commit(self) -> None:
        self.sink.execute("INSERT INTO staged VALUES (?, '{}', ?)", values=[self.branch.name, json.dumps(self.rows)])

    def discard(self) -> None:
        self.rows.clear()
