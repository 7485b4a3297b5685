"""The file that `sparkonce init` writes: right but for the three lines that only its owner knows."""

from __future__ import annotations

import re

EDIT = "# EDIT"
"""Ends the lines to edit."""

_TEMPLATE = """\
# A pipeline of sparkonce. Three lines say EDIT; the rest works as it is.
#   sparkonce check {file}

name = "{name}"
checkpoint = "checkpoints/{name}"          # relative to this file; or any address that Spark reaches

[source]
bootstrap_servers = "127.0.0.1:19092"      # EDIT: where Kafka is (this is `sparkonce broker start`)
topics = ["<input topic>"]                 # EDIT: what to read; or topic_pattern, or partitions
start = "earliest"                         # latest, {{ committed = "group" }}, {{ timestamp = 2026-01-31T12:00:00Z }}
# value = {{ format = "json", schema = "id BIGINT, user STRING, amount DOUBLE" }}

# [source.kafka]                           # any client property, by its Java name
# "security.protocol" = "SASL_SSL"
# "sasl.mechanism" = "PLAIN"
# "sasl.username" = "me"
# "sasl.password" = {{ env = "KAFKA_PASSWORD" }}

[transform]
sql = "SELECT key, value FROM source"      # or python = "module:function", or arrow = "module:function"

[[sink]]
type = "kafka"                             # postgres, mariadb, files; several [[sink]] get all of it or nothing
topic = "<output topic>"                   # EDIT: where to write; in the source's cluster unless you say otherwise
guarantee = "exactly-once"
transactional_id = "{name}"                # a name that no other query uses

# [[sink]]
# type = "files"
# path = "archive/{name}"

[run]
trigger = "1 second"                       # or "available-now": all that is there, then stop
max_offsets_per_trigger = 100000
master = "local[*]"                        # or a cluster's address

[run.spark]                                # any setting of Spark
# "spark.sql.shuffle.partitions" = 8
"""


def template(file: str) -> str:
    """The text for a file of this name; the pipeline is called as the file is."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.removesuffix(".toml")).strip("-.") or "pipeline"
    return _TEMPLATE.format(name=name, file=file)


def lines_to_edit(text: str) -> list[tuple[int, str]]:
    """Each line to edit, with its number."""
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if f"{EDIT}:" in line]
