"""Two-phase commit over stores: prepare everywhere, decide once, commit everywhere. Knows no store and no Spark."""

from sparkonce.commit.branch import Branch, Run, name_prefix, parse_branch, query_digest, sink_digest
from sparkonce.commit.decision import Decision, DecisionStore, is_decided
from sparkonce.commit.decision_files import FileDecisions, Folder, LocalFolder, sync_folder
from sparkonce.commit.participant import (
    BranchOutput,
    BranchWriter,
    Handle,
    Participant,
    for_each,
    leftovers,
    write_branch,
)
from sparkonce.commit.pending import PendingCommits
from sparkonce.commit.runner import TwoPhaseCommit
from sparkonce.commit.states import State

__all__ = [
    "Branch",
    "BranchOutput",
    "BranchWriter",
    "Decision",
    "DecisionStore",
    "FileDecisions",
    "Folder",
    "Handle",
    "LocalFolder",
    "Participant",
    "PendingCommits",
    "Run",
    "State",
    "TwoPhaseCommit",
    "for_each",
    "is_decided",
    "leftovers",
    "name_prefix",
    "parse_branch",
    "query_digest",
    "sink_digest",
    "sync_folder",
    "write_branch",
]
