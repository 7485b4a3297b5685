"""Checks of permissions, as far as brokers tell a client what it may do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.ops.doctor.commands import allow
from sparkonce.ops.doctor.facts import Facts, GroupFacts, Operations, TopicFacts
from sparkonce.ops.doctor.findings import Finding, ok, problem, unknown
from sparkonce.ops.doctor.topic_checks import present
from sparkonce.options import ConnectionOptions
from sparkonce.wire.diagnosis import Operation

READING = (Operation.READ, Operation.DESCRIBE)
WRITING = (Operation.WRITE, Operation.DESCRIBE)


def topics(facts: Facts) -> Iterator[Finding]:
    """What may be done with topics."""
    checked = 0
    for _, topic in present(facts):
        if topic.allowed is None:
            continue
        checked += 1
        missing = absent(topic.allowed, needed_for(topic, facts))
        if missing:
            yield problem(
                "permissions",
                f"this client may not {words(missing)} the {topic.role} topic {topic.name}{_why(topic, missing)}",
                allow(connection(facts, at_sink=topic.role == "sink"), f"--topic {topic.name}", missing),
            )
    if checked and not any(True for _ in _denied_topics(facts)):
        yield ok("permissions", "the topics may be read and written as needed")


def _denied_topics(facts: Facts) -> Iterator[TopicFacts]:
    for _, topic in present(facts):
        if topic.allowed is not None and absent(topic.allowed, needed_for(topic, facts)):
            yield topic


def needed_for(topic: TopicFacts, facts: Facts) -> tuple[Operation, ...]:
    """The marker is an offset of the sink's topic, which takes READ there."""
    if topic.role == "source":
        return READING
    if topic.role == "sink" and facts.query.transactional_id is not None:
        return (*WRITING, Operation.READ)
    return WRITING


def _why(topic: TopicFacts, missing: list[Operation]) -> str:
    is_marker = topic.role == "sink" and missing == [Operation.READ]
    return " (the marker of a micro-batch is an offset of it, which takes READ)" if is_marker else ""


def groups(facts: Facts) -> Iterator[Finding]:
    """What may be done with groups."""
    denied = [finding for group in facts.groups if (finding := _group(group, facts)) is not None]
    yield from denied
    if facts.groups and not denied:
        yield ok("permissions", f"the groups may be used: {', '.join(group.name for group in facts.groups)}")


def _group(group: GroupFacts, facts: Facts) -> Finding | None:
    options = connection(facts, at_sink=group.at_sink)
    if group.error is not None:
        return problem(
            "permissions",
            f"{group.what} group {group.name} cannot be used: {group.error}",
            allow(options, f"--group {group.name}"),
        )
    missing = [] if group.allowed is None else absent(group.allowed, READING)
    if not missing:
        return None
    return problem(
        "permissions",
        f"this client may not {words(missing)} {group.what} group {group.name}",
        allow(options, f"--group {group.name}", missing),
    )


def transactional_id(facts: Facts) -> Iterator[Finding]:
    """Whether transactions may be run under the id."""
    found = facts.transactional_id
    if found is None:
        return
    if found.may_write is False or _is_denied(found.write_error) or _is_denied(found.error):
        yield problem(
            "permissions",
            f"this client may not run transactions under the id {found.name}",
            allow(connection(facts, at_sink=True), f"--transactional-id {found.name}", WRITING),
        )
    elif found.may_write:
        yield ok("permissions", f"transactions may be run under the id {found.name}")
    else:
        yield unknown("permissions", f"whether the id {found.name} may be used is not known: {found.write_error}")


def _is_denied(error: str | None) -> bool:
    return error is not None and "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in error


def absent(allowed: Operations, needed: tuple[Operation, ...]) -> list[Operation]:
    """What is needed and not allowed."""
    return [operation for operation in needed if operation not in allowed]


def words(operations: list[Operation]) -> str:
    """READ and WRITE."""
    return " and ".join(operation.name.lower() for operation in operations)


def connection(facts: Facts, *, at_sink: bool) -> ConnectionOptions:
    """As whom, and where."""
    sink = facts.query.sink
    return sink.connection if at_sink and sink is not None else facts.query.source.connection
