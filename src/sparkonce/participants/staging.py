"""Tables in which a branch's rows wait, and the table that says which micro-batches are in: names and columns."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from sparkonce.commit import Branch

ROW_NUMBER = "sparkonce_row"
"""A column of staged tables: which of several rows with the same keys came last."""
BATCHES = "sparkonce_batches"
"""One row a query and sink: the last micro-batch whose rows are in the table."""


def stage_prefix(query: str) -> str:
    """How the names of a query's staged tables begin."""
    return f"sparkonce_{query}_"


def stage_name(branch: Branch) -> str:
    """At most 63 bytes, as databases want it; the branch's whole name is kept as the table's comment."""
    return stage_prefix(branch.query) + hashlib.sha256(branch.name.encode()).hexdigest()[:20]


def numbered(arrow_batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """With the number of each row."""
    return arrow_batch.append_column(ROW_NUMBER, pa.array(np.arange(first, first + arrow_batch.num_rows)))
