"""Stores that take part in two-phase commit. Each is a small frozen description; none keeps a connection."""

from sparkonce.participants.files import FileParticipant, published_batches, published_files
from sparkonce.participants.memory import MemoryParticipant, MemoryStore

__all__ = ["FileParticipant", "MemoryParticipant", "MemoryStore", "published_batches", "published_files"]
