"""Listeners with SASL and TLS: what works, and what a wrong password, certificate or protocol looks like."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from sparkonce.devbroker import DevBroker
from sparkonce.devbroker.ports import free_ports
from sparkonce.errors import UsageError
from sparkonce.options import ConnectionOptions
from sparkonce.wire import Client, Deadline, init_producer
from sparkonce.wire.apis import METADATA
from sparkonce.wire.cluster import metadata_body

USER, WORD = "alice", 'wonder"land'
SESSION_MS = 2_000
MODULES = "org.apache.kafka.common.security"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@dataclass(frozen=True)
class Secured:
    """The listeners of one broker, and the files that fit them."""

    plain: str
    sasl: str
    tls: str
    mutual: str
    sasl_tls: str
    folder: Path

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certificate(folder: Path, name: str, *extra: str) -> None:
    """A key and a certificate, in one file as a PEM key store holds them."""
    key, cert = str(folder / f"{name}.key"), str(folder / f"{name}.crt")
    subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    openssl("req", "-x509", *subject, "-keyout", key, "-out", cert, *extra)
    (folder / f"{name}.pem").write_text(Path(key).read_text() + Path(cert).read_text())


def make_certificates(folder: Path) -> None:
    certificate(folder, "authority")
    (folder / "ca.pem").write_text((folder / "authority.crt").read_text())
    signed = ["-CA", str(folder / "authority.crt"), "-CAkey", str(folder / "authority.key")]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    certificate(folder, "server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    certificate(folder, "client", *signed)
    certificate(folder, "stranger")


def listener_properties(ports: list[int], folder: Path) -> dict[str, str]:
    names = ["PLAINTEXT", "CONTROLLER", "SASL", "TLS", "MUTUAL", "SASLTLS"]
    protocols = ["PLAINTEXT", "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SSL", "SASL_SSL"]
    places = {name: f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{WORD.replace(chr(34), chr(92) + chr(34))}";'
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    return {
        "listeners": ",".join(places.values()),
        "advertised.listeners": ",".join(place for name, place in places.items() if name != "CONTROLLER"),
        "controller.quorum.voters": f"0@127.0.0.1:{ports[1]}",
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in zip(names, protocols, strict=True)),
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": plain,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.sasl.plain.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.sasltls.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasltls.plain.sasl.jaas.config": plain,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    ports = free_ports(6)
    with DevBroker(port=ports[0], properties=listener_properties(ports, folder)):
        places = [f"127.0.0.1:{port}" for port in ports]
        add_scram_user(places[0])
        yield Secured(places[0], places[2], places[3], places[4], places[5], folder)


def add_scram_user(servers: str) -> None:
    library: Any = confluent_admin
    info = library.ScramCredentialInfo(library.ScramMechanism.SCRAM_SHA_512, 4096)
    change = library.UserScramCredentialUpsertion(USER, info, WORD.encode())
    admin = library.AdminClient({"bootstrap.servers": servers})  # must outlive the call
    admin.alter_user_scram_credentials([change])[USER].result(30)


def works(servers: str, **more: Any) -> None:
    with Client(ConnectionOptions(bootstrap_servers=servers, **more)) as client:
        assert init_producer(client, None, 0).producer_id >= 0


def fails(servers: str, **more: Any) -> str:
    """The text of the UsageError, which must come within seconds."""
    began = time.monotonic()
    with Client(ConnectionOptions(bootstrap_servers=servers, **more)) as client, pytest.raises(UsageError) as caught:
        client.metadata((), Deadline.after_ms(60_000))
    assert time.monotonic() - began < 25
    return str(caught.value)


def sasl(mechanism: str = "PLAIN", password: str = WORD, **more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    } | more


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_right_password(secured: Secured, mechanism: str) -> None:
    works(secured.sasl, **sasl(mechanism))


def test_the_right_password_from_java_properties(secured: Secured) -> None:
    quoted = WORD.replace('"', '\\"')
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="{USER}" password="{quoted}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.authority,
    }
    with Client(ConnectionOptions.from_properties(secured.sasl_tls, properties)) as client:
        assert client.metadata(()).brokers


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_named_at_once(secured: Secured, mechanism: str) -> None:
    text = fails(secured.sasl, **sasl(mechanism, password="not-it"))  # noqa: S106
    assert "SASL_AUTHENTICATION_FAILED (58)" in text
    assert f"{USER} ({mechanism}) on {secured.sasl}" in text
    assert "not-it" not in text


def test_a_mechanism_that_is_not_offered(secured: Secured) -> None:
    text = fails(secured.sasl, **sasl("SCRAM-SHA-256"))
    assert "UNSUPPORTED_SASL_MECHANISM" in text
    assert "PLAIN" in text


def test_a_session_that_ends_is_renewed(secured: Secured) -> None:
    with Client(ConnectionOptions(bootstrap_servers=secured.sasl, **sasl())) as client:
        until = Deadline.after_ms(int(2.5 * SESSION_MS))
        address = next(iter(client.metadata(()).brokers.values()))
        while not until.expired:
            # Asked once, without retries: the broker would hang up on a session that has ended.
            client.ask(address, METADATA, metadata_body(()), client.deadline())
            client.connections.pause(0.1)


def test_a_plain_client_at_a_sasl_listener(secured: Secured) -> None:
    assert "security.protocol" in fails(secured.sasl)


def test_a_sasl_client_at_a_plain_listener(secured: Secured) -> None:
    assert "SASL" in fails(secured.plain, **sasl())


def test_a_trusted_certificate(secured: Secured) -> None:
    works(secured.tls, security_protocol="SSL", ssl_ca_file=secured.authority)
    pem = Path(secured.authority).read_text()
    works(secured.tls, security_protocol="SSL", ssl_ca_pem=pem)


def test_an_untrusted_certificate(secured: Secured) -> None:
    text = fails(secured.tls, security_protocol="SSL", ssl_ca_file=str(secured.folder / "stranger.crt"))
    assert "certificate was not accepted" in text
    assert "ssl_ca_file" in text


def test_a_certificate_for_another_name(secured: Secured) -> None:
    port = secured.tls.split(":")[1]
    text = fails(f"localhost:{port}", security_protocol="SSL", ssl_ca_file=secured.authority)
    assert "localhost" in text
    options = {"security_protocol": "SSL", "ssl_ca_file": secured.authority, "ssl_check_hostname": False}
    works(f"localhost:{port}", **options)


def test_a_client_certificate(secured: Secured) -> None:
    store = str(secured.folder / "client.pem")
    options = {"security_protocol": "SSL", "ssl_ca_file": secured.authority}
    works(secured.mutual, **options, ssl_certificate_file=store, ssl_key_file=store)


@pytest.mark.parametrize("store", [None, "stranger.pem"])
def test_a_missing_or_unknown_client_certificate(secured: Secured, store: str | None) -> None:
    path = None if store is None else str(secured.folder / store)
    options = {"security_protocol": "SSL", "ssl_ca_file": secured.authority}
    text = fails(secured.mutual, **options, ssl_certificate_file=path, ssl_key_file=path)
    assert "certificate" in text.lower()


def test_a_plain_client_at_a_tls_listener(secured: Secured) -> None:
    assert "security.protocol" in fails(secured.tls)


def test_a_tls_client_at_a_plain_listener(secured: Secured) -> None:
    assert "does the listener speak TLS?" in fails(
        secured.plain, security_protocol="SSL", ssl_ca_file=secured.authority
    )


def test_a_file_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"nowhere\.pem \(no such file\)"):
        Client(ConnectionOptions(bootstrap_servers="a:1", security_protocol="SSL", ssl_ca_file="nowhere.pem"))
