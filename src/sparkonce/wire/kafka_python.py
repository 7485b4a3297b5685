"""The one place that touches what kafka-python does not promise: its message internals and SASL mechanisms.

From kafka-python we take the protocol messages (generated from Kafka's own schemas) and the SASL exchanges. We do not
take its connections: measured, a fetch of 10 MB costs 45 ms of CPU there (chunks of 4 KB, three copies) and 3.5 ms
here; its connection manager turns refused credentials into time-outs; and its event loop lets time-outs run while the
caller is computing. `sparkonce.wire.connection` and its neighbours replace them.

Everything here returns plain values or `Any`; callers turn it into typed values at once.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.api_header import ResponseClassRegistry

from sparkonce.options import ConnectionOptions


def build_message(message_class: Any, version: int, body: Mapping[str, Any]) -> Any:
    """Build a protocol message from nested dictionaries; a name that the schema lacks raises a ValueError."""
    values = {name: _nested(message_class.fields[name], version, value) for name, value in body.items()}
    return message_class(version=version, **values)


def _nested(field: Any, version: int, value: Any) -> Any:
    if value is None or not field.is_struct_array():
        return value
    return [build_message(field.data_class, version, item) for item in value]


def encode_frame(message: Any, correlation_id: int, client_id: str) -> bytearray:
    """A whole request, with its length and header, as it goes over the wire."""
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return message.encode(framed=True, header=True)  # type: ignore[no-any-return]


def encode_header(message_class: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """Only the header of a request, for bodies that are encoded elsewhere."""
    message = message_class(version=version)
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return message.encode_header(flexible=message_class.flexible_version_q(version))  # type: ignore[no-any-return]


def response_header_bytes(message_class: Any, version: int) -> int:
    """How many bytes precede the body of a response: the correlation id and, when flexible, an empty tag section."""
    is_api_versions = message_class.API_KEY == 18  # its header stays as it was, so that any client can read it
    return 5 if message_class.flexible_version_q(version) and not is_api_versions else 4


def decode_response(message_class: Any, version: int, body: memoryview) -> Any:
    """Decode the body of a response to the given request class; a ValueError if it cannot be."""
    response_class = ResponseClassRegistry._response_class_registry[message_class.API_KEY]
    try:
        return response_class[version].decode(io.BytesIO(body) if message_class.API_KEY == 18 else body)
    except (struct.error, IndexError) as error:
        raise ValueError(f"{len(body)} bytes are no answer to {message_class.__name__}: {error}") from error


def sasl_mechanism(options: ConnectionOptions, host: str) -> Any:
    """A fresh SASL exchange of kafka-python's, for one connection."""
    return get_sasl_mechanism(options.sasl_mechanism)(
        host=host,
        # Without this kafka-python logs a warning per connection about SASL_PLAINTEXT, which its user chose.
        security_protocol="SASL_SSL",
        sasl_mechanism=options.sasl_mechanism,
        sasl_plain_username=options.sasl_username,
        sasl_plain_password=options.sasl_password,
        sasl_kerberos_service_name=options.sasl_kerberos_service_name,
        sasl_kerberos_domain_name=options.sasl_kerberos_domain_name,
        sasl_oauth_token_provider=options.sasl_oauth_token_provider,
    )
