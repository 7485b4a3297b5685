"""The pipeline file, key by key: the one description of it.

What an option means to the source or to a sink is checked by their own option classes; here is only what it is called,
what kind of value it takes, and what it is for. Tests hold the names, choices and defaults against those classes: they
need Spark and the compiled kernels, which this file must do without.
"""

from __future__ import annotations

from sparkonce.pipeline.shapes import Either, Flag, Key, ListOf, MapOf, Moment, Table, Text, Variants, Whole

TARGET = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
TOPIC = r"[A-Za-z0-9._-]{1,249}"
NOT_EMPTY = r"[\s\S]*\S[\s\S]*"
DURATION = r"\d+\s*(ms|s|m|min|h|d)?"

_text = Text()
_name = Text(what="a text", pattern=NOT_EMPTY)
_folder = Text(what='a folder or an address such as "checkpoints/orders"', pattern=NOT_EMPTY)
_topic = Text(what="the name of a topic: letters, digits, '.', '_' and '-'", pattern=TOPIC)
_target = Text(what='a text such as "module:function"', pattern=TARGET)
_servers = Text(what='a text such as "host:9092,other:9092"', pattern=NOT_EMPTY)
_ddl = Text(what='a text such as "id BIGINT, name STRING"', pattern=NOT_EMPTY)
_duration = Text(what='a text such as "500ms", "10s", "15m" or "1h"', pattern=DURATION)
_positive = Whole(lowest=1)
_scalar = Either((_text, Whole(), Flag()))
_texts = ListOf(_text, "a list of texts", '["id"]')
_kafka_properties = MapOf(of=_scalar, what="a table of Kafka's client properties", dotted=True)
_each_partition = MapOf(
    of=MapOf(of=Whole(), what='a table such as { "0" = 5 }', names=r"\d+"),
    what='a table such as { orders = { "0" = 5, "1" = 7 } }',
)

_AT_TIME = (
    Key("timestamp", Either((Moment(), Whole(lowest=0))), "a time with a zone, or milliseconds since 1970"),
    Key("timestamps", _each_partition, "milliseconds for each topic partition"),
    Key("offsets", _each_partition, "offsets of each topic partition; -2 earliest, -1 latest"),
)
_RESET = Text(choices=("fail", "earliest", "latest"))
_START = Table(
    keys=(
        Key("committed", _name, "where this consumer group is"),
        *_AT_TIME,
        Key("reset", _RESET, "where nothing is committed, or all records are older (`fail`, `latest`)", default="fail"),
    ),
    what="a table with one of committed, timestamp, timestamps and offsets",
    one_of=("committed", "timestamp", "timestamps", "offsets"),
)
_STOP = Table(
    keys=_AT_TIME,
    what="a table with one of timestamp, timestamps and offsets",
    one_of=("timestamp", "timestamps", "offsets"),
)
_FORMAT = Table(
    keys=(
        Key("format", Text(choices=("binary", "string", "json")), "what the bytes are", required=True),
        Key("schema", _ddl, "of JSON, as DDL"),
    ),
    what='a table such as { format = "json", schema = "id BIGINT, name STRING" }',
)

SOURCE = Table(
    keys=(
        Key("bootstrap_servers", _servers, "where the cluster is", required=True),
        Key("topics", ListOf(_topic, "a list of topics", '["orders"]'), "what to read"),
        Key("topic_pattern", _name, "or all topics whose whole name matches this regular expression"),
        Key(
            "partitions",
            MapOf(
                of=ListOf(Whole(lowest=0), "a list of partition numbers", "[0, 1]"),
                what="a table such as { orders = [0, 1] }",
                names=TOPIC,
            ),
            "or these topic partitions",
        ),
        Key(
            "start",
            Either((Text(choices=("earliest", "latest")), _START)),
            "where the first start is",
            default="latest",
        ),
        Key("stop", Either((Text(choices=("latest",)), _STOP)), "where the query ends; never, if left out"),
        Key("key", _FORMAT, "what keys are; raw bytes, if left out"),
        Key("value", _FORMAT, "what values are; raw bytes, if left out"),
        Key(
            "on_malformed",
            Text(choices=("fail", "null", "raw", "dead-letter")),
            "what becomes of keys and values that are something else",
            default="fail",
        ),
        Key("dead_letter_topic", _topic, "where malformed records go with `dead-letter`"),
        Key("include_headers", Flag(), "a column `headers`", default="false"),
        Key(
            "isolation",
            Text(choices=("read_committed", "read_uncommitted")),
            "whether to leave out what is not committed",
            default="read_committed",
        ),
        Key("fail_on_data_loss", Flag(), "stop when records are gone before they were read", default="true"),
        Key("max_bytes_per_trigger", _positive, "how many bytes a micro-batch reads at most, as they lie in the log"),
        Key("min_offsets_per_trigger", _positive, "wait for so many offsets"),
        Key("max_trigger_delay", _duration, "but no longer than this", default="15m"),
        Key("min_partitions", _positive, "cut big partitions into at least so many tasks"),
        Key("max_partitions", _positive, "read by at most so many tasks, several partitions each"),
        Key("max_records_per_partition", _positive, "cut them into tasks of so many offsets"),
        Key("partition_discovery_interval", _duration, "how often new partitions are looked for", default="10s"),
        Key(
            "commit_offsets_on_checkpoint", Flag(), "show the group of `kafka.group.id` how far we are", default="false"
        ),
        Key("max_event_time_drift", _duration, "hold back partitions that are so much ahead in time"),
        Key("idle_timeout", _duration, "how long a partition without records holds back the others", default="0"),
        Key("kafka", _kafka_properties, 'client properties by their Java names: `{ "security.protocol" = "SSL" }`'),
    ),
    what="the table [source]",
    one_of=("topics", "topic_pattern", "partitions"),
)

TRANSFORM = Table(
    keys=(
        Key("sql", _name, "a query over the view `source`"),
        Key("python", _target, "or `module:function`, from a DataFrame to a DataFrame"),
        Key("arrow", _target, "or `module:function`, from an iterator of Arrow batches to one"),
        Key("schema", _ddl, "what `arrow` gives, as DDL"),
    ),
    what="the table [transform]",
    one_of=("sql", "python", "arrow"),
)

_SELECT = Either(
    (
        ListOf(_name, "a list of SQL expressions", '["key", "value"]'),
        _name,
        Table(
            keys=(
                Key("sql", _name, "a query over the view `rows`"),
                Key("python", _target, "or `module:function`, from a DataFrame to a DataFrame"),
            ),
            what='a table such as { python = "module:function" }',
            one_of=("sql", "python"),
        ),
    )
)
_PARTITIONER = Either(
    (
        Text(choices=("murmur2", "fixed")),
        Table(
            keys=(Key("python", _target, "`module:function` of (Arrow batch, number of partitions)", required=True),),
            what='a table such as { python = "module:function" }',
        ),
    )
)


def _sink(kind: str, *keys: Key) -> Table:
    common = (
        Key("retries", Whole(lowest=0), "how often an aborted micro-batch is run again", default="3"),
        Key("grants_host", _name, "where executors reach the driver", default="Spark's driver host"),
        Key("grants_port", Whole(lowest=0), "and at which port", default="0, a free one"),
    )
    type_key = Key("type", Text(choices=(kind,)), "where rows go", required=True)
    select = Key("select", _SELECT, "what of the rows it gets: SQL expressions, a query over `rows`, or a function")
    return Table(keys=(type_key, select, *keys, *common), what="the table [[sink]]")


def _database(kind: str, address: str, example: str) -> Table:
    return _sink(
        kind,
        Key(
            address,
            Text(what=f'a text such as "{example}"', pattern=NOT_EMPTY),
            "where the database is",
            required=True,
        ),
        Key("table", _name, "where rows go", required=True),
        Key(
            "mode",
            Text(choices=("append", "upsert", "idempotent")),
            "`idempotent` needs no prepared transactions",
            default="append",
        ),
        Key("keys", _texts, "the columns by which `upsert` finds a row"),
        Key("name", _name, "of the sink, if two write to one table", default="database and table"),
        Key("lock_timeout_ms", _positive, "how long a task waits for a row that another holds", default="30000"),
    )


_KAFKA_SINK = _sink(
    "kafka",
    Key("bootstrap_servers", _servers, "where the cluster is", default="as the source, and its `kafka`"),
    Key("topic", _topic, "where rows go that have no column `topic`"),
    Key(
        "guarantee",
        Text(choices=("exactly-once", "at-least-once", "none")),
        "see [what is promised](GUARANTEES.md)",
        default="exactly-once",
    ),
    Key("transactional_id", _name, "a name that no other query uses; required for exactly-once"),
    Key(
        "compression",
        Text(choices=("none", "gzip", "snappy", "lz4", "zstd")),
        "of record batches",
        default="lz4",
    ),
    Key("acks", Whole(lowest=-1), "-1: all in-sync replicas", default="-1"),
    Key("batch_bytes", _positive, "the largest record batch", default="1048588"),
    Key("requests_in_flight", _positive, "for each partition, at most 5", default="5"),
    Key("transaction_timeout_ms", _positive, "how long a transaction may be open", default="60000"),
    Key("deadline_ms", _positive, "how long a sending task keeps trying", default="120000"),
    Key("partitioner", _PARTITIONER, "which partition a row goes to", default="murmur2"),
    Key("one_stage", Flag(), "no shuffle where there is a core for every Spark partition", default="true"),
    Key("offsets_group", _name, "a consumer group that is given the source's offsets, in the transaction"),
    Key(
        "on_missing_marker",
        Text(choices=("stop", "committed", "not-committed")),
        "when nobody can know whether a micro-batch is committed",
        default="stop",
    ),
    Key("kafka", _kafka_properties, "client properties by their Java names"),
)

SINKS = {
    "kafka": _KAFKA_SINK,
    "postgres": _database("postgres", "dsn", "host=localhost dbname=shop"),
    "mariadb": _database("mariadb", "url", "mariadb://user:password@localhost:3306/shop"),
    "files": _sink(
        "files",
        Key("path", _folder, "a folder that all tasks and the driver see", required=True),
        Key("format", Text(choices=("parquet", "arrow")), "of the files", default="parquet"),
    ),
}

RUN = Table(
    keys=(
        Key("trigger", Text(what='a text such as "1 second", or "available-now"'), "how often; at once, if left out"),
        Key("max_offsets_per_trigger", _positive, "how much a micro-batch reads at most"),
        Key("master", _name, "Spark's, or a cluster's address", default="local[*]"),
        Key(
            "spark",
            MapOf(of=_scalar, what="a table of Spark's settings", names=r"spark\..+", dotted=True),
            'any setting of Spark: `"spark.sql.shuffle.partitions" = 8`',
        ),
    ),
    what="the table [run]",
)

PIPELINE = Table(
    keys=(
        Key("name", _name, "what the pipeline is called", required=True),
        Key(
            "checkpoint",
            _folder,
            "where Spark keeps its progress: a folder, or an address that Spark reaches",
            required=True,
        ),
        Key("source", SOURCE, "what is read", required=True),
        Key("transform", TRANSFORM, "what becomes of it; rows as they are, if left out"),
        Key(
            "sink",
            ListOf(
                Variants(by="type", tables=SINKS, what="a table [[sink]]"), "one or more tables [[sink]]", "[[sink]]"
            ),
            "where it goes; several get a micro-batch together or not at all",
            required=True,
        ),
        Key("run", RUN, "how it runs"),
    ),
)
