"""`sparkonce doctor`: is everything set up right for a pipeline?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from sparkonce.cli.query_file import load_query
from sparkonce.cli.reports import echo_json, file_argument, json_option
from sparkonce.ops.doctor import Finding, Verdict, examine, gather
from sparkonce.ops.query import Record
from sparkonce.ops.tables import count, wrapped

_VERDICT_WIDTH = 9
_SUBJECT_WIDTH = 14
_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red", Verdict.UNKNOWN: "cyan"}


@click.command()
@file_argument
@json_option
@click.pass_context
def doctor(context: click.Context, file: Path, as_json: bool) -> None:  # noqa: FBT001
    """Look at everything that the pipeline FILE needs: clusters, topics, permissions, databases, checkpoint, Java.

    Changes nothing. Exit code 0 if there is no problem (warnings may be there), 1 if there is one.

    \b
    Example:
      sparkonce doctor orders.toml
      sparkonce doctor orders.toml --json
    """
    findings = examine(gather(load_query(file)))
    if as_json:
        echo_json(findings_record(findings))
    else:
        click.echo(findings_text(findings))
    context.exit(1 if any(finding.verdict is Verdict.PROBLEM for finding in findings) else 0)


def findings_text(findings: Sequence[Finding]) -> str:
    """For people: one line a finding, its remedy below."""
    lines = [_finding_text(finding) for finding in findings]
    return "\n".join([*lines, "", summary(findings)])


def _finding_text(finding: Finding) -> str:
    indent = _VERDICT_WIDTH + _SUBJECT_WIDTH
    verdict = click.style(finding.verdict.value.ljust(_VERDICT_WIDTH), fg=_COLOURS[finding.verdict])
    text = f"{verdict}{finding.subject.ljust(_SUBJECT_WIDTH)}{wrapped(finding.message, indent)}"
    return f"{text}\n{' ' * indent}→ {wrapped(finding.remedy, indent + 2)}" if finding.remedy else text


def summary(findings: Sequence[Finding]) -> str:
    """How many of each."""
    found = Counter(finding.verdict for finding in findings)
    parts = [count(found[Verdict.PROBLEM], "problem"), count(found[Verdict.WARNING], "warning")]
    if found[Verdict.UNKNOWN]:
        parts.append(f"{found[Verdict.UNKNOWN]} unknown")
    return f"{', '.join(parts)}, {found[Verdict.OK]} ok."


def findings_record(findings: Sequence[Finding]) -> Record:
    """For programs."""
    return {
        "ok": not any(finding.verdict is Verdict.PROBLEM for finding in findings),
        "findings": [
            {
                "verdict": finding.verdict.value,
                "subject": finding.subject,
                "message": finding.message,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }
