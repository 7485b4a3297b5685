"""Free and taken TCP ports on the loopback address. Knows nothing about Kafka."""

from __future__ import annotations

import contextlib
import random
import socket

from sparkonce.errors import UsageError

LOOPBACK = "127.0.0.1"
CANDIDATES = range(20_000, 32_000)
"""Below the range from which systems take the ports of outgoing connections, so that a stopped broker finds its
port still free when it is started again."""
TRIES = 200


def free_ports(count: int) -> list[int]:
    """That many different ports that were free a moment ago. Nobody can promise more, so the caller may retry."""
    chooser = random.SystemRandom()
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for _ in range(TRIES):
            if len(found) == count:
                return found
            port = chooser.choice(CANDIDATES)
            with contextlib.suppress(OSError):
                held.enter_context(bound(port))
                found.append(port)
    raise UsageError(f"No {count} free ports between {CANDIDATES[0]} and {CANDIDATES[-1]} after {TRIES} tries.")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    try:
        bound(port).close()
    except OSError:
        return False
    return True


def bound(port: int) -> socket.socket:
    """A socket that holds the port. Address reuse as Java sets it: a port in TIME_WAIT counts as free."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, port))
        # Two sockets that reuse the address may both be bound; only listening shows that it is taken.
        holder.listen(1)
    except OSError:
        holder.close()
        raise
    return holder
