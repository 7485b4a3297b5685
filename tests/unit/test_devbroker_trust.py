"""The list of certificate authorities that Java is given: readable by Java, with as many entries as Python has."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from sparkonce.devbroker.trust import jks, trust_options


def test_the_list_has_every_authority_and_a_checksum() -> None:
    authorities = [b"first certificate", b"second"]
    store = jks(authorities)
    assert store[:12] == bytes.fromhex("feedfeed 00000002 00000002")
    assert all(authority in store for authority in authorities)
    signed = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store[:-20]
    assert store[-20:] == hashlib.sha1(signed, usedforsecurity=False).digest()


def test_without_a_list_of_its_own_python_leaves_java_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert trust_options(tmp_path / "trust.jks") == []
    assert not (tmp_path / "trust.jks").exists()


def test_java_is_pointed_to_the_list(tmp_path: Path) -> None:
    if not ssl.create_default_context().get_ca_certs():
        pytest.skip("this machine's Python has no list of authorities")
    options = trust_options(tmp_path / "trust.jks")
    assert f"-Djavax.net.ssl.trustStore={tmp_path / 'trust.jks'}" in options
    assert (tmp_path / "trust.jks").read_bytes()[:4] == bytes.fromhex("feedfeed")
