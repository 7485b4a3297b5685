"""Who runs this query, for the error of the driver that was replaced."""

from __future__ import annotations

import os
import socket


def here() -> str:
    """This process, in words."""
    return f"process {os.getpid()} on {socket.gethostname()}"
