"""What a check says: a verdict, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It runs, but something may be lost or stop later."""
    PROBLEM = "problem"
    """It does not run, or does not keep what it promises."""
    UNKNOWN = "unknown"
    """It could not be looked at from here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    verdict: Verdict
    subject: str
    message: str
    remedy: str = ""


def ok(subject: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(Verdict.OK, subject, message)


def warning(subject: str, message: str, remedy: str) -> Finding:
    """Something to think about."""
    return Finding(Verdict.WARNING, subject, message, remedy)


def problem(subject: str, message: str, remedy: str) -> Finding:
    """Something to change."""
    return Finding(Verdict.PROBLEM, subject, message, remedy)


def unknown(subject: str, message: str, remedy: str = "") -> Finding:
    """Something that could not be looked at."""
    return Finding(Verdict.UNKNOWN, subject, message, remedy)
