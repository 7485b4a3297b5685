"""One task's output partitions: sequences, requests under way, receipts. Knows neither Spark nor how to commit."""

from sparkonce.send.sender import IN_FLIGHT_MAX, Receipt, Sender, SendSettings, next_sequence

__all__ = ["IN_FLIGHT_MAX", "Receipt", "SendSettings", "Sender", "next_sequence"]
