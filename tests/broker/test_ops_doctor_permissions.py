"""`sparkonce doctor` on a broker with access control: what a user may not do is found, and what it needs suffices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from sparkonce.deadline import Deadline, wait_until
from sparkonce.devbroker import QUICK_JVM, DevBroker
from sparkonce.devbroker.ports import free_ports
from sparkonce.ops.doctor import Verdict
from tests.broker.ops_samples import findings, problems, query_on, said
from tests.broker.transaction_samples import new_id
from tests.conftest import create_topic

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "wonderland",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[DevBroker, str]]:
    """A broker with ACLs: everybody may do everything on its plain listener, alice only what she is allowed."""
    plain, controller, sasl = free_ports(3)
    listeners = {"PLAINTEXT": plain, "CONTROLLER": controller, "SASL": sasl}
    places = {name: f"{name}://127.0.0.1:{port}" for name, port in listeners.items()}
    properties = {
        "listeners": ",".join(places.values()),
        "advertised.listeners": f"{places['PLAINTEXT']},{places['SASL']}",
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} required user_alice="wonderland";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with DevBroker(port=plain, properties=properties, jvm_options=QUICK_JVM) as started:
        yield started, f"127.0.0.1:{sasl}"


def allow(broker: DevBroker, kind: str, name: str, *operations: str) -> None:
    library: Any = confluent_admin
    admin = library.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    rules = [
        library.AclBinding(
            getattr(library.ResourceType, kind),
            name,
            library.ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            getattr(library.AclOperation, operation),
            library.AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for future in admin.create_acls(rules).values():
        future.result(30)


def test_alice_may_do_nothing(guarded: tuple[DevBroker, str], tmp_path: Path) -> None:
    broker, sasl = guarded
    source, sink = create_topic(broker), create_topic(broker)
    query = query_on(sasl, source, sink, new_id(), tmp_path / "checkpoint", properties=ALICE)
    found = findings(query)
    said(found, Verdict.PROBLEM, f"the source topic {source} cannot be seen", "TOPIC_AUTHORIZATION_FAILED")
    said(found, Verdict.PROBLEM, f"the sink topic {sink} cannot be seen")
    group = said(found, Verdict.PROBLEM, f"the marker's group sparkonce.{query.transactional_id} cannot be used")
    assert f"--operation Read --group sparkonce.{query.transactional_id}" in group.remedy
    denied = said(found, Verdict.PROBLEM, "may not run transactions under the id")
    assert f"--transactional-id {query.transactional_id}" in denied.remedy
    said(found, Verdict.UNKNOWN, "transaction.max.timeout.ms could not be read")
    said(found, Verdict.UNKNOWN, "the clock", "could not be read")


def test_alice_may_do_some(guarded: tuple[DevBroker, str], tmp_path: Path) -> None:
    broker, sasl = guarded
    source, sink, name = create_topic(broker), create_topic(broker), new_id()
    allow(broker, "TOPIC", source, "DESCRIBE")
    allow(broker, "TOPIC", sink, "WRITE")
    allow(broker, "GROUP", f"sparkonce.{name}", "DESCRIBE")
    allow(broker, "TRANSACTIONAL_ID", name, "DESCRIBE")
    query = query_on(sasl, source, sink, name, tmp_path / "checkpoint", properties=ALICE)
    assert wait_until(lambda: "may not read the source topic" in str(findings(query)), Deadline.after(20))
    found = findings(query)
    said(found, Verdict.PROBLEM, f"may not read the source topic {source}")
    said(found, Verdict.PROBLEM, f"may not read the sink topic {sink} (the marker of a micro-batch is an offset of it")
    said(found, Verdict.PROBLEM, f"may not read the marker's group sparkonce.{name}")
    said(found, Verdict.PROBLEM, "may not run transactions under the id")


def test_alice_may_do_all_that_is_needed(guarded: tuple[DevBroker, str], tmp_path: Path) -> None:
    broker, sasl = guarded
    source, sink, name = create_topic(broker), create_topic(broker), new_id()
    allow(broker, "TOPIC", source, "READ")
    allow(broker, "TOPIC", sink, "WRITE", "READ")
    for group in (f"sparkonce.{name}", f"sparkonce-owner.{name}"):
        allow(broker, "GROUP", group, "READ")
    allow(broker, "TRANSACTIONAL_ID", name, "WRITE")
    query = query_on(sasl, source, sink, name, tmp_path / "checkpoint", properties=ALICE)
    assert wait_until(lambda: problems(findings(query)) == [], Deadline.after(20)), problems(findings(query))


def test_a_wrong_password(guarded: tuple[DevBroker, str], tmp_path: Path) -> None:
    _, sasl = guarded
    wrong = ALICE | {"sasl.password": "no"}
    found = findings(query_on(sasl, "a", "b", "c", tmp_path / "checkpoint", properties=wrong))
    said(found, Verdict.PROBLEM, "cannot be used", "SASL_AUTHENTICATION_FAILED")
    plain = findings(query_on(sasl, "a", "b", "c", tmp_path / "checkpoint"))
    assert "security.protocol" in said(plain, Verdict.PROBLEM, "cannot be used").message
