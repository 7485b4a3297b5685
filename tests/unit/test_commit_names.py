"""Names of branches: within the limits of every store, and read back exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.commit import Branch, Handle, Run, leftovers, name_prefix, parse_branch, query_digest, sink_digest

NUMBERS = st.integers(0, 2**63 - 1)
BRANCHES = st.builds(
    Branch, st.text().map(query_digest), NUMBERS, NUMBERS, st.text().map(sink_digest), NUMBERS, NUMBERS
)


@given(BRANCHES)
def test_names_are_read_back_and_fit_every_store(branch: Branch) -> None:
    assert parse_branch(branch.name) == branch
    assert len(branch.name.encode()) < 200
    assert len(branch.global_id.encode()) <= 64
    assert len(branch.qualifier.encode()) <= 64
    assert branch.name.startswith(name_prefix(branch.query))


@given(BRANCHES, st.none() | st.integers(0, 10**9))
def test_handles_travel_as_text(branch: Branch, rows: int | None) -> None:
    read = Handle.from_text(Handle(branch, rows).to_text())
    assert (read.branch, read.rows) == (branch, rows)
    assert read == Handle(branch)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "foreign",
        "sparkonce.2.0123456789ab.1.2/01234567.3.4",
        "sparkonce.1.0123456789AB.1.2/01234567.3.4",
        "sparkonce.1.0123456789ab.01.2/01234567.3.4",
        "sparkonce.1.0123456789ab.-1.2/01234567.3.4",
        "sparkonce.1.0123456789ab.1.2/01234567.3.4 ",
        "sparkonce.1.0123456789ab.1.2/01234567.3.4\n",
        "sparkonce.1.0123456789ab.1.2/01234567.3.9999999999999999999",
        "xsparkonce.1.0123456789ab.1.2/01234567.3.4",
    ],
)
def test_foreign_names_are_not_ours(name: str) -> None:
    assert parse_branch(name) is None
    assert leftovers([name], "0123456789ab") == []


def test_leftovers_of_other_queries_are_left_out() -> None:
    ours, other = (Run(query_digest(q), 1, 2).branch("sink", 0, 0) for q in ("ours", "other"))
    assert leftovers([ours.name, other.name], ours.query) == [Handle(ours)]


@pytest.mark.parametrize("number", [-1, 2**63])
def test_numbers_out_of_range_have_no_name(number: int) -> None:
    with pytest.raises(ValueError, match="cannot be part"):
        Branch("0" * 12, number, 0, "0" * 8, 0, 0)


def test_sinks_and_queries_are_told_apart() -> None:
    run = Run(query_digest("q"), 1, 2)
    assert run.branch("a", 0, 0).name != run.branch("b", 0, 0).name
    assert run.has(run.branch("a", 0, 0))
    assert not Run(query_digest("q"), 1, 3).has(run.branch("a", 0, 0))
