"""How a cluster is reached: every option with its default, written once.

`ConnectionOptions` is a plain value: it crosses from the driver to the tasks and never shows its secrets. It opens
nothing and reads no file; `sparkonce.wire` does. `from_properties` accepts the names that Kafka's Java client (and
where it is easy, librdkafka) uses. Other option classes use `reject_unknown` for their own names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sparkonce.errors import UsageError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to reach a cluster, who we are there, and how patient to be.

    `deadline_ms` bounds a whole call with all its retries where the caller passes no deadline; `request_timeout_ms`
    bounds the silence of one broker within it.
    """

    bootstrap_servers: Sequence[str] | str
    client_id: str = "sparkonce"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: object | None = field(default=None, repr=False)
    ssl_ca_file: str | None = None
    ssl_ca_pem: str | None = field(default=None, repr=False)
    ssl_certificate_file: str | None = None
    ssl_key_file: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    bootstrap_timeout_ms: int = 6_000
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    deadline_ms: int = 60_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    max_response_bytes: int = 268_435_456
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", split_servers(self.bootstrap_servers))
        _require_one_of("security_protocol", self.security_protocol, SECURITY_PROTOCOLS)
        if self.uses_sasl:
            _check_sasl(self)
        elif self.sasl_mechanism is not None:
            raise UsageError(
                f"sasl_mechanism is {self.sasl_mechanism}, but security_protocol is {self.security_protocol}; "
                "use SASL_SSL or SASL_PLAINTEXT"
            )
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value <= 0):
                raise UsageError(f"{name} must be a whole number above 0, not {value!r}")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap servers as (host, port)."""
        return tuple(parse_server(server) for server in self.bootstrap_servers)

    @classmethod
    def from_properties(
        cls, bootstrap_servers: Sequence[str] | str, properties: Mapping[str, str]
    ) -> ConnectionOptions:
        """Translate the property names of Kafka's Java client, for example ``security.protocol``."""
        reject_unknown(properties, known_properties(), what="connection property")
        values: dict[str, Any] = {}
        for name, text in properties.items():
            values.update(_TRANSLATIONS[name](name, str(text)))
        return cls(bootstrap_servers=bootstrap_servers, **values)


_POSITIVE = tuple(f.name for f in fields(ConnectionOptions) if f.name.endswith(("_ms", "_bytes")))


def reject_unknown(names: Collection[str] | Mapping[str, Any], known: Collection[str], *, what: str) -> None:
    """Raise a UsageError for the first name that is not known, naming the nearest one that is."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
            raise UsageError(f"unknown {what} {name!r}; {hint}")


def known_properties() -> tuple[str, ...]:
    """The property names that `ConnectionOptions.from_properties` understands."""
    return tuple(_TRANSLATIONS)


def split_servers(servers: Sequence[str] | str) -> tuple[str, ...]:
    """Bootstrap servers as a tuple, from a comma separated text or a sequence; each one is checked."""
    parts = servers.split(",") if isinstance(servers, str) else servers
    result = tuple(part.strip() for part in parts if part.strip())
    if not result:
        raise UsageError("bootstrap_servers is empty; give at least one host:port")
    for server in result:
        parse_server(server)
    return result


def parse_server(server: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``; the port may be left out."""
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:/\s]+))(?::(?P<port>\d{1,5}))?", server)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65_536:
        raise UsageError(f"{server!r} is not a server address; write host:port, for example localhost:9092")
    return match["six"] or match["host"], port


def _require_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def _check_sasl(options: ConnectionOptions) -> None:
    if options.sasl_mechanism is None:
        raise UsageError(f"security_protocol {options.security_protocol} needs a sasl_mechanism")
    _require_one_of("sasl_mechanism", options.sasl_mechanism, SASL_MECHANISMS)
    has_password = options.sasl_username is not None and options.sasl_password is not None
    if options.sasl_mechanism in PASSWORD_MECHANISMS and not has_password:
        raise UsageError(f"sasl_mechanism {options.sasl_mechanism} needs sasl_username and sasl_password")
    if options.sasl_mechanism == "OAUTHBEARER" and options.sasl_oauth_token_provider is None:
        raise UsageError("sasl_mechanism OAUTHBEARER needs sasl_oauth_token_provider")


# Translation of Java property names. Each translator returns the option values that a property stands for.

Translator = Callable[[str, str], dict[str, Any]]


def _text(option: str) -> Translator:
    return lambda _name, text: {option: text}


def _upper(option: str) -> Translator:
    return lambda _name, text: {option: text.upper()}


def _number(option: str) -> Translator:
    def translate(name: str, text: str) -> dict[str, Any]:
        if not re.fullmatch(r"\d+", text.strip()):
            raise UsageError(f"{name} must be a whole number, not {text!r}")
        return {option: int(text)}

    return translate


def _hostname_check(name: str, text: str) -> dict[str, Any]:
    if text.lower() not in ("", "none", "https"):
        raise UsageError(f"{name} must be 'https' or empty, not {text!r}")
    return {"ssl_check_hostname": text.lower() == "https"}


def _only_pem(name: str, text: str) -> dict[str, Any]:
    if text.upper() != "PEM":
        raise UsageError(
            f"{name}={text} cannot be read from Python; convert the store to PEM "
            "(keytool -importkeystore to PKCS12, then openssl pkcs12) and set the type to PEM"
        )
    return {}


def _pem_store(*options: str) -> Translator:
    def translate(name: str, text: str) -> dict[str, Any]:
        if text.lower().endswith((".jks", ".p12", ".pfx", ".pkcs12", ".keystore", ".truststore")):
            raise UsageError(
                f"{name}={text} is a Java key store, which Python cannot read; convert it to a PEM file "
                "(keytool -importkeystore to PKCS12, then openssl pkcs12)"
            )
        return dict.fromkeys(options, text)

    return translate


def _jaas(name: str, text: str) -> dict[str, Any]:
    """Read user name and password out of ``…LoginModule required username="…" password="…";``."""
    module = re.match(r"\s*(?:[\w$]+\.)*(?P<module>\w+)\s+(?:required|requisite|sufficient|optional)\b", text)
    if module is None:
        raise UsageError(f'{name} is not of the form: <LoginModule> required username="…" password="…";')
    if module["module"] not in ("PlainLoginModule", "ScramLoginModule"):
        raise UsageError(
            f"{name} names {module['module']}; only PlainLoginModule and ScramLoginModule are translated. "
            "For Kerberos set KRB5_CLIENT_KTNAME and sasl.mechanism=GSSAPI instead"
        )
    found = {key: _unquote(value) for key, value in re.findall(r'(\w+)\s*=\s*("(?:\\.|[^"\\])*"|[^\s;]+)', text)}
    if "username" not in found or "password" not in found:
        raise UsageError(f"{name} must hold username and password")
    return {"sasl_username": found["username"], "sasl_password": found["password"]}


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


_TRANSLATIONS: dict[str, Translator] = {
    "client.id": _text("client_id"),
    "security.protocol": _upper("security_protocol"),
    "sasl.mechanism": _upper("sasl_mechanism"),
    "sasl.mechanisms": _upper("sasl_mechanism"),
    "sasl.jaas.config": _jaas,
    "sasl.username": _text("sasl_username"),
    "sasl.password": _text("sasl_password"),
    "sasl.kerberos.service.name": _text("sasl_kerberos_service_name"),
    "ssl.truststore.type": _only_pem,
    "ssl.truststore.location": _pem_store("ssl_ca_file"),
    "ssl.truststore.certificates": _text("ssl_ca_pem"),
    "ssl.keystore.type": _only_pem,
    # A PEM key store holds the key and its certificate chain in one file.
    "ssl.keystore.location": _pem_store("ssl_certificate_file", "ssl_key_file"),
    "ssl.key.password": _text("ssl_key_password"),
    "ssl.ca.location": _text("ssl_ca_file"),
    "ssl.certificate.location": _text("ssl_certificate_file"),
    "ssl.key.location": _text("ssl_key_file"),
    "ssl.endpoint.identification.algorithm": _hostname_check,
    "request.timeout.ms": _number("request_timeout_ms"),
    "default.api.timeout.ms": _number("deadline_ms"),
    "socket.connection.setup.timeout.ms": _number("connect_timeout_ms"),
    "retry.backoff.ms": _number("retry_backoff_ms"),
    "retry.backoff.max.ms": _number("retry_backoff_max_ms"),
    "connections.max.idle.ms": _number("connections_max_idle_ms"),
    "send.buffer.bytes": _number("send_buffer_bytes"),
    "receive.buffer.bytes": _number("receive_buffer_bytes"),
}
