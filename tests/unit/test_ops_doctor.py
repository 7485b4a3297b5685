"""Each check of the doctor over facts that have exactly one thing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click
import pytest

from sparkonce.cli.doctor import findings_record, findings_text
from sparkonce.ops.doctor import Finding, Verdict, examine
from sparkonce.ops.doctor.cluster_checks import VERSIONS, version_text
from sparkonce.ops.doctor.facts import (
    Facts,
)
from sparkonce.ops.tables import WIDTH
from tests.unit.doctor_cases import CASES
from tests.unit.doctor_samples import (
    batch,
    cluster,
    healthy,
    known,
    marker_of,
    with_checkpoint,
)

GOLDEN = Path(__file__).parents[1] / "data" / "doctor"


def worse(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def test_a_healthy_query_has_nothing_to_say() -> None:
    findings = examine(healthy())
    assert worse(findings) == []
    assert click.unstyle(findings_text(findings)) == dedent("""\
        ok       brokers       3 brokers of the source and sink at here:9092, Kafka 4.3
        ok       topics        orders (source, 4 partitions), big-orders (sink, 4 partitions)
        ok       replication   orders: 3 copies, 2 in sync to write
        ok       replication   big-orders: 3 copies, 2 in sync to write
        ok       transactions  transaction.version is 2: the new protocol (KIP-890)
        ok       transactions  a transaction may be open for 1 min, the brokers allow 15 min
        ok       retention     the brokers keep markers for 7 d
        ok       permissions   the topics may be read and written as needed
        ok       permissions   the groups may be used: sparkonce.big
        ok       permissions   transactions may be run under the id big
        ok       owner         no transaction is open under big; last used by process 4711 on host-a, query
                               q-1
        ok       checkpoint    committed is batch 5; Kafka has batch 5
        ok       records       everything that is to be read is there; 10 offsets are waiting
        ok       stores        postgres shop orders can prepare transactions, and has none in doubt
        ok       clocks        the clocks of the source and sink and of this machine agree within 12 ms
        ok       machine       Java 21.0.2 (PATH)
        ok       machine       Python 3.12.1
        ok       machine       pyspark 4.2.0

        0 problems, 0 warnings, 18 ok.""")


@pytest.mark.parametrize("name", CASES)
def test_one_thing_wrong_is_one_finding(name: str) -> None:
    make, verdict, message, remedy = CASES[name]
    found = [finding for finding in worse(examine(make())) if message in finding.message]
    assert [finding.verdict for finding in found] == [verdict], worse(examine(make()))
    assert remedy in found[0].remedy
    assert found[0].remedy or verdict is Verdict.UNKNOWN
    text = click.unstyle(findings_text(found))
    # A word is never cut, so that addresses and options can be copied.
    assert all(len(line) <= WIDTH or " " not in line.strip(" →") for line in text.splitlines())
    record = findings_record(found)
    assert record["ok"] is (verdict is not Verdict.PROBLEM)


def test_every_wrong_thing_has_a_message_of_its_own() -> None:
    messages = [message for _, _, message, _ in CASES.values()]
    assert len(set(messages)) == len(messages) > 40


def test_batches_on_their_way_are_no_problem() -> None:
    for facts in (
        with_checkpoint(batch(6), batch(5)),
        with_checkpoint(batch(6), batch(5), known=known(marker=marker_of(6))),
        with_checkpoint(batch(0), None, known=None),
        with_checkpoint(None, None, known=None),
    ):
        assert worse(examine(facts)) == []


def test_one_broken_check_does_not_stop_the_others() -> None:
    def broken(_facts: Facts) -> Iterator[Finding]:
        raise RuntimeError("on purpose")

    def fine(_facts: Facts) -> list[Finding]:
        return [Finding(Verdict.OK, "x", "fine")]

    findings = examine(healthy(), [broken, fine])
    assert [finding.verdict for finding in findings] == [Verdict.UNKNOWN, Verdict.OK]
    assert "test_ops_doctor.broken failed: RuntimeError: on purpose" in findings[0].message


@pytest.mark.parametrize(("level", "text"), [(14, "3.6"), (15, "3.7"), (25, "4.0"), (30, "4.3"), (99, "4.3 or later")])
def test_versions(level: int, text: str) -> None:
    assert version_text(cluster(software_level=level)) == text
    assert list(VERSIONS) == sorted(VERSIONS)


def golden(name: str) -> Path:
    return GOLDEN / f"{name.replace(' ', '-').replace(',', '').replace(chr(39), '')}.expected"


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_each_is_as_it_was_read_by_a_person(name: str) -> None:
    """To renew one after a change of words: delete its file, run the test twice, and read what it wrote."""
    text = click.unstyle(findings_text(worse(examine(CASES[name][0]())))) + "\n"
    if not golden(name).exists():
        golden(name).write_text(text)
        pytest.fail(f"{golden(name)} was written; read it")
    assert text == golden(name).read_text()


def test_no_text_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {golden(name).name for name in CASES}
