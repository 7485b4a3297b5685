"""Values that stand elsewhere: in the environment or in a file. They are read when they are needed, and never shown.

A `Secret` holds only where to look, so that no repr, pickle or error message of it can show more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkonce.errors import UsageError

PLACES = ("env", "file")
HIDDEN = re.compile(r"password|passwd|secret|token|jaas|credential|dsn|url|pem|certificates", re.IGNORECASE)
"""Names of keys whose values are not shown even if they stand in the file itself."""
_TOKEN_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Secret:
    """A text in an environment variable or in a file."""

    place: str
    """env or file"""
    name: str
    folder: Path = Path()
    """What a relative path of a file is relative to: the folder of the pipeline file."""

    def reveal(self) -> str:
        """The text itself; a line break at the end of a file is not part of it."""
        if self.place == "env":
            if self.name not in os.environ:
                raise UsageError(f"the environment variable {self.name} is not set")
            return os.environ[self.name]
        try:
            return (self.folder / self.name).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(f"the file {self.name} cannot be read: {reason}") from None

    @property
    def where(self) -> str:
        """In words."""
        return f"the {'environment variable' if self.place == 'env' else 'file'} {self.name}"

    def __str__(self) -> str:
        return f"a secret in {self.where}"


Text = str | Secret


def revealed(value: Any) -> Any:
    """The value with the texts of all secrets in it."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, dict):
        return {name: revealed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(revealed(each) for each in value)
    return value


def secrets_in(value: Any) -> list[Secret]:
    """All secrets of a value."""
    if isinstance(value, Secret):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [secret for each in value for secret in secrets_in(each)]
    return []


def hides(message: str, secrets: Iterable[Secret]) -> bool:
    """Whether a message shows nothing of the secrets, not even one word of them."""
    for secret in secrets:
        text = secret.reveal()
        words = [text, *re.split(r"\W+", text)]
        if any(len(word) >= _TOKEN_LENGTH and word in message for word in words) or (text and text in message.split()):
            return False
    return True
