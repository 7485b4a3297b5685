"""Every key of a pipeline file as tables for the documents; made of the same description as the check.

`tools/options_page.py` writes them into `docs/OPTIONS.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkonce.pipeline.keys import PIPELINE, RUN, SINKS, SOURCE, TRANSFORM
from sparkonce.pipeline.shapes import Either, Key, Shape, Table, expected

HEAD = "| key | default | meaning | value |\n|---|---|---|---|"
SINK_HEAD = "| key | of | default | meaning | value |\n|---|---|---|---|---|"


def key_tables() -> str:
    """All of them, in Markdown."""
    first = Table(keys=tuple(key for key in PIPELINE.keys if key.name in ("name", "checkpoint")))
    parts = {"The first lines": first, "[source]": SOURCE, "[transform]": TRANSFORM, "[run]": RUN}
    texts = {title: "\n".join([HEAD, *_rows(table)]) for title, table in parts.items()}
    ordered = ["The first lines", "[source]", "[transform]", "[[sink]]", "[run]"]
    texts["[[sink]]"] = "\n".join([SINK_HEAD, *_sink_rows()])
    return "\n\n".join(f"### {title}\n{texts[title]}" for title in ordered) + "\n"


def _rows(table: Table) -> Iterator[str]:
    for name, key in _with_inner(table):
        yield f"| `{name}` | {_default(key)} | {key.meaning} | {_value(key.shape)} |"


def _sink_rows() -> Iterator[str]:
    """A key that several kinds of sinks have is one row."""
    kinds: dict[tuple[str, str], list[str]] = {}
    rows: dict[tuple[str, str], Key] = {}
    for kind, table in SINKS.items():
        for name, key in _with_inner(table):
            kinds.setdefault((name, key.meaning), []).append(kind)
            rows[name, key.meaning] = key
    for (name, meaning), key in rows.items():
        found = kinds[name, meaning]
        of = "all" if len(found) == len(SINKS) else ", ".join(found)
        value = ", ".join(f'"{kind}"' for kind in SINKS) if name == "type" else _value(key.shape)
        yield f"| `{name}` | {of} | {_default(key)} | {meaning} | {value} |"


def _with_inner(table: Table) -> Iterator[tuple[str, Key]]:
    """The keys, each followed by those of a table that it may be."""
    for key in table.keys:
        yield key.name, key
        for inner in _tables_in(key.shape):
            yield from ((f"{key.name}.{each.name}", each) for each in inner.keys)


def _tables_in(shape: Shape) -> list[Table]:
    if isinstance(shape, Either):
        return [table for each in shape.shapes for table in _tables_in(each)]
    return [shape] if isinstance(shape, Table) else []


def _default(key: Key) -> str:
    return (
        "required" if key.required else (f"`{key.default}`" if key.default and " " not in key.default else key.default)
    )


def _value(shape: Shape) -> str:
    return expected(shape)
