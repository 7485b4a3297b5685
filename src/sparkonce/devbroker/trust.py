"""Makes Java trust the certificate authorities that Python trusts.

A Java runtime brings a list of its own, which knows nothing of an authority that was added to the machine, as behind a
company's proxy. Python's list honours the system's and SSL_CERT_FILE, so pip gets through where Java would not. It is
written in Java's simplest format (JKS), big-endian:

    magic FEEDFEED | version (2) | number of entries
    entry:  tag (2: trusted certificate) | alias | time ms (int64) | certificate type | length | the certificate (DER)
    SHA-1 of: the password in UTF-16, the words "Mighty Aphrodite", and everything before
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

_PASSWORD = "changeit"  # noqa: S105  Java's own default; the list is public, the password only guards its checksum.
_HEADER = struct.Struct(">III")
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2


def trust_options(store: Path) -> list[str]:
    """Writes the list to `store` and gives the options that make Java use it; nothing if Python has no list."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    store.write_bytes(jks(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def jks(certificates: list[bytes]) -> bytes:
    """A Java key store of trusted certificates."""
    content = bytearray(_HEADER.pack(_MAGIC, _VERSION, len(certificates)))
    for number, certificate in enumerate(certificates):
        content += struct.pack(">I", _TRUSTED) + _text(f"authority-{number}") + struct.pack(">q", 0)
        content += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content, usedforsecurity=False)
    return bytes(content) + checksum.digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
