"""Asks a broker whether it really answers, with two requests written by hand.

It needs no Kafka client, so that the dev broker can test one. Layouts (Kafka protocol guide, all big-endian):

    frame     size int32, then that many bytes
    request   api key int16 | api version int16 | correlation id int32 | client id string | body
    response  correlation id int32 | body
    string    length int16 (-1: null) | UTF-8 bytes

    ApiVersions v0   request: empty                 response: error code int16 | …
    Metadata v2      request: topics int32 (0: no)  response: broker count int32 |
                                                      (node id int32 | host string | port int32 | rack string)* |
                                                      cluster id string | …
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

API_VERSIONS = 18
METADATA = 3
CLIENT_ID = b"sparkonce-probe"
LARGEST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one of its brokers sees it."""

    cluster_id: str
    live_brokers: frozenset[int]


def ask_broker(host: str, port: int, timeout_seconds: float) -> ClusterView | None:
    """What the broker at that address says; None when it does not answer, or not as a broker."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds) as connection:
            (error_code,) = struct.unpack_from(">h", ask(connection, API_VERSIONS, 0, b""))
            if error_code != 0:
                return None
            return cluster_view(ask(connection, METADATA, 2, struct.pack(">i", 0)))
    except (OSError, struct.error, ValueError):
        return None


def ask(connection: socket.socket, api_key: int, api_version: int, body: bytes) -> bytes:
    """Sends one request and returns the body of its answer."""
    header = struct.pack(">hhih", api_key, api_version, api_key, len(CLIENT_ID)) + CLIENT_ID
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    if not 4 <= size <= LARGEST_ANSWER_BYTES:
        raise ValueError(f"an answer of {size} bytes is not Kafka's")
    answer = receive_exactly(connection, size)
    if struct.unpack_from(">i", answer) != (api_key,):
        raise ValueError("the answer belongs to another request")
    return answer[4:]


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """That many bytes, or an OSError when the peer hangs up."""
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        received += chunk
    return bytes(received)


def cluster_view(body: bytes) -> ClusterView:
    """Reads a Metadata v2 answer up to the cluster id."""
    (count,) = struct.unpack_from(">i", body)
    position, brokers = 4, set()
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", body, position)
        brokers.add(node_id)
        _, position = string_at(body, position + 4)
        _, position = string_at(body, position + 4)
    cluster_id, _ = string_at(body, position)
    return ClusterView(cluster_id, frozenset(brokers))


def string_at(body: bytes, position: int) -> tuple[str, int]:
    """The nullable string that starts here, and the position behind it."""
    (length,) = struct.unpack_from(">h", body, position)
    start = position + 2
    end = start + max(0, int(length))
    return body[start:end].decode("utf-8"), end
