"""Checks of what Spark would run with here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkonce.ops.doctor.facts import Facts
from sparkonce.ops.doctor.findings import Finding, ok, problem, unknown

OLDEST_PYTHON = (3, 11)
OLDEST_PYSPARK = (4, 2)


def java(facts: Facts) -> Iterator[Finding]:
    """Whether there is a Java that Spark runs on."""
    if facts.machine.java is None:
        yield problem("machine", facts.machine.java_error or "no Java was found", "pip install 'sparkonce[java]'")
    else:
        yield ok("machine", f"Java {facts.machine.java}")


def python(facts: Facts) -> Iterator[Finding]:
    """Whether driver and workers run the same Python, a new enough one."""
    machine = facts.machine
    here = ".".join(map(str, machine.python))
    if machine.python[:2] < OLDEST_PYTHON:
        yield problem("machine", f"Python {here} is too old", "Use Python 3.11 or later")
    if machine.worker_python_error is not None:
        yield problem("machine", machine.worker_python_error, "Correct PYSPARK_PYTHON, or leave it unset")
    elif machine.worker_python is not None and _pair(machine.worker_python) != machine.python[:2]:
        yield problem(
            "machine",
            f"the workers run Python {machine.worker_python} (PYSPARK_PYTHON), the driver {here}: Spark refuses that",
            "Set PYSPARK_PYTHON to the driver's Python, or leave it unset",
        )
    else:
        yield ok("machine", f"Python {here}")


def pyspark(facts: Facts) -> Iterator[Finding]:
    """Whether Spark is there and new enough."""
    found = facts.machine.pyspark
    if found is None or _pair(found) < OLDEST_PYSPARK:
        yield problem("machine", f"pyspark is {found or 'not installed'}", "pip install 'pyspark>=4.2'")
    else:
        yield ok("machine", f"pyspark {found}")


def workers(facts: Facts) -> Iterator[Finding]:
    """On a cluster the workers have their own."""
    if not facts.query.master.startswith("local"):
        yield unknown(
            "machine",
            f"the workers of {facts.query.master} have a Java, Python and packages of their own, not seen from here",
            "Submit the pipeline with `sparkonce submit FILE`, which takes the packages along",
        )


def _pair(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
