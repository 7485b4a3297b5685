"""All connections of one client: opening with introduction and authentication, waiting, closing.

One thread at a time, no thread of its own: sockets move only while somebody waits (`wait_any`, `pause`) or sends.
A connection is introduced once: ApiVersions (KIP-511), then SASL if asked for (KIP-152).
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import RetriableError, SparkonceError, UsageError
from sparkonce.options import ConnectionOptions
from sparkonce.wire.apis import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    BrokerFeatures,
    choose_version,
    read_features,
    require_supported_broker,
)
from sparkonce.wire.channel import open_channel, refused, tls_context
from sparkonce.wire.connection import Address, Connection, Frame, Pending, lost_answer
from sparkonce.wire.kafka_python import build_message, decode_response, encode_frame, sasl_mechanism
from sparkonce.wire.verdicts import error_for

Encoder = Callable[[int, int, str], Frame]
"""Makes the frame of a request from (version, correlation id, client id)."""

MAX_IN_FLIGHT = 100
"""Requests under way on one connection; a further one waits."""

# A connection is renewed before its SASL session ends on the broker's side (KIP-368).
_SESSION_SHARE = 0.85


class Connections:
    """The open connections of one client, by address."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._tls = tls_context(options)
        self._selector = selectors.DefaultSelector()
        self._by_place: dict[tuple[str, int], Connection] = {}
        self._process = os.getpid()
        self._closed = False

    def idle_addresses(self) -> tuple[Address, ...]:
        """The addresses that have a live connection with nothing under way."""
        return tuple(c.address for c in self._by_place.values() if not c.in_flight)

    def features(self, address: Address) -> BrokerFeatures | None:
        """What the broker said about itself, if there is a connection."""
        connection = self._by_place.get((address.host, address.port))
        return None if connection is None else connection.features

    def send(
        self,
        address: Address,
        api: Api,
        encode: Encoder,
        deadline: Deadline,
        *,
        expects_answer: bool = True,
        extra_patience_ms: int = 0,
    ) -> Pending:
        """Hand a request to the address's connection, opening it if there is none."""
        connection = self._connection(address, deadline)
        self._await_room(connection, deadline)
        version = choose_version(api, connection.features, str(address))
        return self._submit(
            connection, api, version, encode, expects_answer=expects_answer, extra_patience_ms=extra_patience_ms
        )

    def _submit(
        self,
        connection: Connection,
        api: Api,
        version: int,
        encode: Encoder,
        *,
        expects_answer: bool = True,
        extra_patience_ms: int = 0,
    ) -> Pending:
        patience_ms = self.options.request_timeout_ms + extra_patience_ms
        pending = Pending(connection, api, version, patience_ms, expects_answer=expects_answer)
        connection.submit(pending, lambda correlation: encode(version, correlation, connection.client_id))
        self._watch(connection)
        return pending

    def wait_any(self, pendings: Iterable[Pending], deadline: Deadline) -> None:
        """Wait until at least one of the requests is done.

        A broker that stays silent for a request's patience, counted while somebody waits, loses its connection. When
        the deadline comes first, that is a RetriableError (in doubt for what must not be repeated).
        """
        waiting = list(pendings)
        began = time.monotonic()
        while waiting and not any(p.done for p in waiting):
            now = time.monotonic()
            silence = min(max(began, p.connection.progress_at) + p.patience_ms / 1000 for p in waiting)
            if now >= silence:
                self._give_up_silent(waiting, began, now)
                continue
            if now >= deadline.at:
                raise lost_answer(waiting[0], f"none within {deadline.total_ms:,} ms", name="DEADLINE")
            self._move(min(silence, deadline.at) - now)

    def _give_up_silent(self, waiting: list[Pending], began: float, now: float) -> None:
        for pending in waiting:
            if now >= max(began, pending.connection.progress_at) + pending.patience_ms / 1000:
                pending.connection.fail(f"it was silent for {pending.patience_ms:,} ms", name="NO_ANSWER")
                self._watch(pending.connection)

    def pause(self, seconds: float) -> None:
        """Let time pass, while requests under way go on."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._move(left)

    def close(self) -> None:
        """Close all sockets; requests under way fail."""
        if self._closed:
            return
        self._closed = True
        for connection in self._by_place.values():
            if self._process == os.getpid():
                connection.fail("this client was closed")
            else:
                connection.close()
        self._by_place.clear()
        self._selector.close()

    def _move(self, seconds: float) -> None:
        """Wait for sockets at most that long, and move what they give and take."""
        for key, events in self._selector.select(max(0.0, seconds)):
            connection: Connection = key.data
            if events & selectors.EVENT_READ:
                connection.read()
            if events & selectors.EVENT_WRITE and not connection.closed:
                connection.write()
            self._watch(connection, key)

    def _watch(self, connection: Connection, key: selectors.SelectorKey | None = None) -> None:
        """Bring the selector up to date with what the connection waits for."""
        place = (connection.address.host, connection.address.port)
        if connection.closed:
            if self._by_place.get(place) is connection:
                del self._by_place[place]
            # The kernel forgets a closed socket by itself; the selector's own table does not.
            key = next((k for k in self._selector.get_map().values() if k.data is connection), None)
            if key is not None:
                self._selector.unregister(key.fd)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_to_write else 0)
        key = key or self._selector.get_key(connection.channel)
        if key.events != wanted:
            self._selector.modify(connection.channel, wanted, connection)

    def _connection(self, address: Address, deadline: Deadline) -> Connection:
        self._require_usable()
        connection = self._by_place.get((address.host, address.port))
        if connection is not None and not connection.in_flight:
            # A broker closes idle connections. Notice it now: once a request has been sent, its fate is unknown.
            self._move(0)
        if connection is not None and self._is_stale(connection):
            self._drain(connection, deadline)
        if connection is not None and not connection.closed:
            if address.broker_id >= 0:
                connection.address = address  # a bootstrap server turned out to be this broker
            return connection
        return self._open(address, deadline.sooner_ms(self.options.connect_timeout_ms))

    def _require_usable(self) -> None:
        if self._closed:
            raise UsageError("this client is closed")
        if self._process != os.getpid():
            raise UsageError("this client was made in another process; make one in the process that uses it")

    def _is_stale(self, connection: Connection) -> bool:
        now = time.monotonic()
        idle_ms = (now - connection.progress_at) * 1000
        return now >= connection.expires_at or (
            not connection.in_flight and idle_ms > self.options.connections_max_idle_ms
        )

    def _drain(self, connection: Connection, deadline: Deadline) -> None:
        """Let the answers under way arrive, then close, so that a fresh connection takes over in order."""
        while connection.in_flight and not connection.closed:
            self.wait_any([connection.oldest()], deadline)
        if not connection.closed:
            connection.fail("the connection was renewed")
            self._watch(connection)

    def _await_room(self, connection: Connection, deadline: Deadline) -> None:
        while connection.in_flight >= MAX_IN_FLIGHT:
            self.wait_any([connection.oldest()], deadline)

    def _open(self, address: Address, deadline: Deadline) -> Connection:
        channel = open_channel(address, self.options, self._tls, deadline)
        connection = Connection(address, channel, self.options.client_id, self.options.max_response_bytes)
        self._by_place[address.host, address.port] = connection
        self._selector.register(channel, selectors.EVENT_READ, connection)
        try:
            self._introduce(connection, deadline)
        except BaseException:
            connection.close()
            self._watch(connection)
            raise
        return connection

    def _introduce(self, connection: Connection, deadline: Deadline) -> None:
        from_us = {"client_software_name": "sparkonce", "client_software_version": "1"}
        try:
            answer = self._ask(connection, API_VERSIONS, API_VERSIONS.highest, from_us, deadline)
        except RetriableError as error:
            hint = f"{error}. Is security.protocol={self.options.security_protocol} what this listener speaks?"
            raise RetriableError(hint, fault=error.fault) from error
        if answer.error_code:
            raise error_for(API_VERSIONS.name, answer.error_code, str(connection.address))
        connection.features = read_features(answer)
        require_supported_broker(connection.features, str(connection.address))
        if self.options.uses_sasl:
            self._authenticate(connection, deadline)

    def _authenticate(self, connection: Connection, deadline: Deadline) -> None:
        body = {"mechanism": self.options.sasl_mechanism}
        answer = self._ask(connection, SASL_HANDSHAKE, SASL_HANDSHAKE.highest, body, deadline)
        if answer.error_code:
            offered = f"the listener offers {', '.join(answer.mechanisms) or 'none'}"
            raise error_for(SASL_HANDSHAKE.name, answer.error_code, str(connection.address), offered)
        try:
            lifetime_ms = self._exchange_tokens(connection, deadline)
        except SparkonceError:
            raise
        except Exception as error:  # whatever a SASL library raises: Kerberos, tokens, a wrong server signature
            reason = f"SASL {self.options.sasl_mechanism} failed: {type(error).__name__}: {error}"
            raise refused(connection.address, reason) from error
        if lifetime_ms > 0:
            connection.expires_at = time.monotonic() + lifetime_ms / 1000 * _SESSION_SHARE

    def _exchange_tokens(self, connection: Connection, deadline: Deadline) -> int:
        mechanism = sasl_mechanism(self.options, connection.address.host)
        version = choose_version(SASL_AUTHENTICATE, connection.features, str(connection.address))
        lifetime_ms = 0
        while not mechanism.is_done():
            body = {"auth_bytes": mechanism.auth_bytes()}
            answer = self._ask(connection, SASL_AUTHENTICATE, version, body, deadline)
            if answer.error_code:
                who = f"{self.options.sasl_username or 'this client'} ({self.options.sasl_mechanism})"
                subject = f"{who} on {connection.address}"
                raise error_for(SASL_AUTHENTICATE.name, answer.error_code, subject, answer.error_message)
            lifetime_ms = int(answer.session_lifetime_ms)
            mechanism.receive(answer.auth_bytes)
        if not mechanism.is_authenticated():
            raise refused(connection.address, f"SASL {self.options.sasl_mechanism} ended without success")
        return lifetime_ms

    def _ask(self, connection: Connection, api: Api, version: int, body: Mapping[str, Any], deadline: Deadline) -> Any:
        message = build_message(api.message, version, body)
        pending = self._submit(connection, api, version, lambda _, c, name: [encode_frame(message, c, name)])
        self.wait_any([pending], deadline)
        return decode_response(api.message, version, pending.body())
