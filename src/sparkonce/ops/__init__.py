"""Looking after queries from outside: transactions, lag, offsets, and whether everything is set up right.

Knows the protocol and the checkpoint, but neither Spark nor pipeline files: whoever calls says what a query is.
"""

from sparkonce.ops.query import KafkaSinkTarget, Query, SourceTarget, StoreTarget

__all__ = ["KafkaSinkTarget", "Query", "SourceTarget", "StoreTarget"]
