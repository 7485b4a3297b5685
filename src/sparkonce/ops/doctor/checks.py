"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparkonce.ops.doctor import access_checks, cluster_checks, machine_checks, query_checks, topic_checks
from sparkonce.ops.doctor.facts import Facts
from sparkonce.ops.doctor.findings import Finding, unknown

Check = Callable[[Facts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    cluster_checks.reachable,
    cluster_checks.advertised,
    topic_checks.exist,
    topic_checks.leaders,
    topic_checks.copies,
    topic_checks.in_sync,
    topic_checks.unclean_election,
    topic_checks.batch_size,
    cluster_checks.transaction_version,
    cluster_checks.transaction_timeout,
    cluster_checks.state_log,
    cluster_checks.retention,
    cluster_checks.id_expiration,
    topic_checks.short_lives,
    access_checks.topics,
    access_checks.groups,
    access_checks.transactional_id,
    query_checks.owner,
    query_checks.groups,
    query_checks.checkpoint,
    query_checks.positions,
    query_checks.stores,
    cluster_checks.clocks,
    machine_checks.java,
    machine_checks.python,
    machine_checks.pyspark,
    machine_checks.workers,
)


def examine(facts: Facts, checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """What all checks say. One that breaks says so, and the others go on."""
    found: list[Finding] = []
    for check in checks:
        try:
            found += check(facts)
        except Exception as error:  # a mistake in one check must not hide what the others found
            name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
            found.append(unknown("doctor", f"the check {name} failed: {type(error).__name__}: {error}"))
    return found
