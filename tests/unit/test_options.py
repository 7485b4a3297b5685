from __future__ import annotations

import pickle

import pytest

from sparkonce.errors import UsageError
from sparkonce.options import ConnectionOptions, known_properties, parse_server, reject_unknown, split_servers

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3\\"cret;x=1";'


def test_servers_are_split_and_checked() -> None:
    assert split_servers(" a:1 , b:2,") == ("a:1", "b:2")
    assert ConnectionOptions(bootstrap_servers=["a:1", "b"]).bootstrap_addresses == (("a", 1), ("b", 9092))
    assert parse_server("[::1]:9093") == ("::1", 9093)


@pytest.mark.parametrize("text", ["", " , ", "http://a:1", "a:b", "a:0", "a:70000", "a b:1", "::1:9092"])
def test_a_bad_server_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ConnectionOptions(bootstrap_servers=text)


def test_no_secret_is_shown() -> None:
    options = ConnectionOptions(
        bootstrap_servers="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="hidden-one",  # noqa: S106
        ssl_key_password="hidden-two",  # noqa: S106
        ssl_ca_pem="hidden-three",
    )
    assert "hidden" not in repr(options)
    assert "hidden" not in str(options)
    assert "alice" in repr(options)


def test_options_survive_pickling() -> None:
    options = ConnectionOptions.from_properties("a:1", {"request.timeout.ms": "1234"})
    again = pickle.loads(pickle.dumps(options))  # noqa: S301 - our own bytes
    assert again == options
    assert again.request_timeout_ms == 1234


def test_java_names_are_translated() -> None:
    options = ConnectionOptions.from_properties(
        "a:1",
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": SCRAM,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "me.pem",
            "ssl.endpoint.identification.algorithm": "",
            "default.api.timeout.ms": "9000",
        },
    )
    assert options.security_protocol == "SASL_SSL"
    assert (options.sasl_username, options.sasl_password) == ("alice", 's3"cret;x=1')
    assert (options.ssl_ca_file, options.ssl_certificate_file, options.ssl_key_file) == ("ca.pem", "me.pem", "me.pem")
    assert options.ssl_check_hostname is False
    assert options.deadline_ms == 9000


def test_librdkafka_names_are_accepted() -> None:
    options = ConnectionOptions.from_properties(
        "a:1",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "ssl.ca.location": "ca.pem",
        },
    )
    assert (options.sasl_mechanism, options.sasl_username, options.ssl_ca_file) == ("PLAIN", "u", "ca.pem")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"unknown connection property 'sasl\.mecanism'; did you mean 'sasl\.mechanism'"
    ):
        ConnectionOptions.from_properties("a:1", {"sasl.mecanism": "PLAIN"})


def test_a_name_near_nothing_lists_what_is_known() -> None:
    with pytest.raises(UsageError, match="known are: alpha, beta"):
        reject_unknown(["zzzzzz"], ["beta", "alpha"], what="option")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl.truststore.type": "JKS"}, "PEM"),
        ({"ssl.truststore.location": "store.jks"}, "Java key store"),
        ({"ssl.keystore.location": "me.p12"}, "Java key store"),
        ({"request.timeout.ms": "soon"}, "whole number"),
        ({"request.timeout.ms": "0"}, "above 0"),
        ({"security.protocol": "TLS"}, "PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl_username and sasl_password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MAGIC"}, "SCRAM-SHA-512"),
        ({"sasl.mechanism": "PLAIN"}, "security_protocol is PLAINTEXT"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"}, "KRB5"),
        ({"sasl.jaas.config": "nonsense"}, "LoginModule"),
        ({"ssl.endpoint.identification.algorithm": "http"}, "https"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(properties: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ConnectionOptions.from_properties("a:1", properties)


def test_a_bad_jaas_text_does_not_leak_the_password() -> None:
    text = 'org.apache.kafka.common.security.plain.PlainLoginModule required user="u" password="topsecret";'
    with pytest.raises(UsageError) as caught:
        ConnectionOptions.from_properties("a:1", {"sasl.jaas.config": text})
    assert "topsecret" not in str(caught.value)


def test_every_known_property_can_be_translated() -> None:
    assert len(known_properties()) == len(set(known_properties())) > 20
