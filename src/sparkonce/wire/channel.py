"""Opening a socket to a broker, plain or with TLS, within a deadline. Knows no Kafka.

What a person has to correct (a certificate, a file, the wrong kind of listener) is a UsageError at once; what may pass
(refused, unreachable, slow) is a RetriableError that names the address and the reason.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from pathlib import Path
from typing import Any

from sparkonce.deadline import Deadline
from sparkonce.errors import Fault, RetriableError, SparkonceError, UsageError
from sparkonce.options import ConnectionOptions
from sparkonce.wire.connection import Address


def unreachable(address: Address, reason: str) -> RetriableError:
    """The error of a connection that could not be opened, but may be later."""
    fault = Fault("connect", None, "UNREACHABLE", str(address))
    return RetriableError(f"cannot connect to {address}: {reason}", fault=fault)


def refused(address: Address, reason: str) -> UsageError:
    """The error of a connection that will be refused again unless a person changes something."""
    fault = Fault("connect", None, "REFUSED", str(address))
    return UsageError(f"cannot connect to {address}: {reason}", fault=fault)


def open_channel(
    address: Address, options: ConnectionOptions, tls: ssl.SSLContext | None, deadline: Deadline
) -> socket.socket:
    """A connected, non-blocking socket; with TLS its handshake is done."""
    channel = _connect_first(address, options, deadline)
    return channel if tls is None else _start_tls(channel, address, tls, deadline)


def _connect_first(address: Address, options: ConnectionOptions, deadline: Deadline) -> socket.socket:
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        hint = "; is the broker's advertised.listeners meant for this network?" if address.broker_id >= 0 else ""
        raise unreachable(address, f"the name cannot be resolved ({error}){hint}") from error
    last: SparkonceError | None = None
    for family, kind, protocol, _, place in places:
        channel = socket.socket(family, kind, protocol)
        try:
            _configure(channel, options)
            _connect(channel, place, address, deadline)
        except RetriableError as error:
            channel.close()
            last = error
        except BaseException:
            channel.close()
            raise
        else:
            return channel
    raise last or unreachable(address, "the name has no address")


def _configure(channel: socket.socket, options: ConnectionOptions) -> None:
    channel.settimeout(0)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes is not None:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
    if options.receive_buffer_bytes is not None:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)


def _connect(channel: socket.socket, place: Any, address: Address, deadline: Deadline) -> None:
    try:
        channel.connect(place)
    except BlockingIOError:
        if not _wait(channel, select.POLLOUT, deadline):
            raise unreachable(address, "no answer to the connection request in time") from None
    except OSError as error:
        raise unreachable(address, error.strerror or str(error)) from error
    code = channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise unreachable(address, os.strerror(code))


def _wait(channel: socket.socket, events: int, deadline: Deadline) -> bool:
    poll = select.poll()
    poll.register(channel, events)
    return bool(poll.poll(deadline.remaining_seconds * 1000))


def _start_tls(channel: socket.socket, address: Address, tls: ssl.SSLContext, deadline: Deadline) -> ssl.SSLSocket:
    # From here on the wrapped socket owns the connection; closing the other one would close nothing.
    secure = tls.wrap_socket(channel, server_hostname=address.host.rstrip("."), do_handshake_on_connect=False)
    try:
        _handshake(secure, address, deadline)
    except OSError as error:  # ssl.SSLError is one
        secure.close()
        raise _explained(address, error) from error
    except BaseException:
        secure.close()
        raise
    return secure


def _explained(address: Address, error: OSError) -> SparkonceError:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate was not accepted ({error.verify_message}); check ssl_ca_file and the host name"
        return refused(address, reason)
    if isinstance(error, ssl.SSLError):
        return refused(address, f"the TLS handshake failed ({error}); does the listener speak TLS?")
    return unreachable(address, f"the TLS handshake was cut off ({error}); does the listener speak TLS?")


def _handshake(secure: ssl.SSLSocket, address: Address, deadline: Deadline) -> None:
    while True:
        try:
            secure.do_handshake()
        except ssl.SSLWantReadError:
            ready = _wait(secure, select.POLLIN, deadline)
        except ssl.SSLWantWriteError:
            ready = _wait(secure, select.POLLOUT, deadline)
        else:
            return
        if not ready:
            raise unreachable(address, "the TLS handshake got no answer in time; does the listener speak TLS?")


def tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    """The TLS settings of all connections, or None for plain ones."""
    if not options.uses_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = options.ssl_check_hostname
    try:
        _load_trust(context, options)
        if options.ssl_certificate_file is not None:
            context.load_cert_chain(options.ssl_certificate_file, options.ssl_key_file, options.ssl_key_password)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"the TLS files cannot be used ({error}): {_file_names(options)}") from error
    return context


def _load_trust(context: ssl.SSLContext, options: ConnectionOptions) -> None:
    if options.ssl_ca_file is None and options.ssl_ca_pem is None:
        context.load_default_certs()
        return
    context.load_verify_locations(cafile=options.ssl_ca_file, cadata=options.ssl_ca_pem)


def _file_names(options: ConnectionOptions) -> str:
    named = {
        "ssl_ca_file": options.ssl_ca_file,
        "ssl_certificate_file": options.ssl_certificate_file,
        "ssl_key_file": options.ssl_key_file,
    }
    return ", ".join(
        f"{name}={path}{'' if Path(path).is_file() else ' (no such file)'}" for name, path in named.items() if path
    )
