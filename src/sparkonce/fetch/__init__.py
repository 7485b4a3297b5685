"""Reading topic partitions: which, from where to where, and their records as Arrow batches. Knows no Spark."""

from sparkonce.fetch.ahead import ReadSettings
from sparkonce.fetch.bounded import bounded_ranges
from sparkonce.fetch.positions import AtTimestamp, Committed, Earliest, ExactOffsets, Latest, Position
from sparkonce.fetch.progress import UNSTARTED, Progress, progress_from_json, ranges_between
from sparkonce.fetch.ranges import OffsetRange, merged
from sparkonce.fetch.reading import read_range
from sparkonce.fetch.settings import SourceSettings
from sparkonce.fetch.stream import StreamPlanner
from sparkonce.fetch.subscription import (
    Assignment,
    Subscription,
    TopicNames,
    TopicPattern,
    parse_assignment,
    parse_topic_names,
    parse_topic_pattern,
)

__all__ = [
    "UNSTARTED",
    "Assignment",
    "AtTimestamp",
    "Committed",
    "Earliest",
    "ExactOffsets",
    "Latest",
    "OffsetRange",
    "Position",
    "Progress",
    "ReadSettings",
    "SourceSettings",
    "StreamPlanner",
    "Subscription",
    "TopicNames",
    "TopicPattern",
    "bounded_ranges",
    "merged",
    "parse_assignment",
    "parse_topic_names",
    "parse_topic_pattern",
    "progress_from_json",
    "ranges_between",
    "read_range",
]
