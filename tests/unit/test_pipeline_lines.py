"""Where keys stand in a TOML text: every path that tomllib finds, and no other, on the line where it was written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkonce.pipeline.toml_lines import Path, key_lines
from tests.unit.pipeline_samples import inline, quoted

CASES = {
    "comments": "# a = 1\n\na = 1 # b = 2\n#c = 3\n  d = 4\n",
    "dotted": "a.b.c = 1\na.\"b d\".e = 2\n'f g' . h = 3\n",
    "tables": "[a]\nx = 1\n[a.b]\ny = 2\n\n[ c . d ]\nz = 3\n",
    "table after its part": "[a.b]\ny = 2\n[a]\nx = 1\n",
    "arrays of tables": "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n[[a.c]]\nz = 4\n[[a.c]]\nz = 5\n[[a]]\n[[a.c]]\n",
    "inline": 'a = { b = 1, "c d" = { e = [1, 2] }, f.g = 3 }\nh = {}\n',
    "arrays": "a = [\n 1, # one\n [2,\n 3], { b = 4 },\n]\nc = []\n",
    "strings": 'a = "x = 1 # \\" ]"\nb = \'y = [ " \'\nc = """\n[d]\n e = "f" \\""" """\n'
    "g = '''\n[h]\n'i''''\nj = 1\n",
    "empty strings": "a = \"\"\nb = ''\nc = \"\"\"\"\"\"\nd = ''''''\ne = [\"\", '']\n",
    "quotes at the end": 'a = """x"""""\nb = 1\n',
    "other values": "a = 1979-05-27 07:32:00\nb = +1_000\nc = -inf\nd = true\ne = 0x_f\n".replace("0x_f", "0xf"),
    "quoted keys": '"a.b" = 1\n"c\\u00e9\\"" = 2\n"" = 3\n',
    "carriage returns": "a = 1\r\n\r\n[b]\r\nc = [\r\n1]\r\n",
    "no line break at the end": "a = 1",
    "nothing": "",
}


def paths_in(value: Any, path: Path = ()) -> set[Path]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return {path}.union(*(paths_in(each, (*path, name)) for name, each in inner))


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_every_path_has_a_line(text: str) -> None:
    assert key_lines(text).keys() == paths_in(tomllib.loads(text))


@pytest.mark.parametrize(
    ("case", "path", "line"),
    [
        ("comments", ("d",), 5),
        ("dotted", ("a", "b d", "e"), 2),
        ("tables", ("a", "b"), 3),
        ("tables", ("c", "d", "z"), 7),
        ("table after its part", ("a",), 3),
        ("arrays of tables", ("a",), 1),
        ("arrays of tables", ("a", 1), 3),
        ("arrays of tables", ("a", 1, "b", "y"), 6),
        ("arrays of tables", ("a", 1, "c", 1, "z"), 10),
        ("arrays of tables", ("a", 2, "c", 0), 12),
        ("arrays", ("a", 1), 3),
        ("arrays", ("a", 1, 1), 4),
        ("arrays", ("a", 2, "b"), 4),
        ("arrays", ("c",), 6),
        ("strings", ("g",), 6),
        ("strings", ("j",), 9),
        ("quotes at the end", ("b",), 2),
        ("carriage returns", ("b", "c", 0), 5),
    ],
)
def test_lines(case: str, path: Path, line: int) -> None:
    assert key_lines(CASES[case])[path] == line


keys = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True), st.text(max_size=4).filter(str.isprintable))
scalars = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=6).filter(str.isprintable), st.datetimes())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)
rows = st.lists(st.dictionaries(keys, values, max_size=3), min_size=1, max_size=3)
tables = st.dictionaries(keys, st.one_of(values, rows), max_size=4)
gaps = st.lists(st.sampled_from(["", "# [x] = { ' \"", "   "]), max_size=2)


class Writer:
    """Writes TOML, and notes on which line it put each key."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lines: list[str] = []
        self.expected: dict[Path, int] = {}

    def line(self, text: str) -> int:
        self.lines += [*self.data.draw(gaps), text]
        return len(self.lines)

    def table(self, table: dict[str, Any], path: Path, header: str) -> None:
        def is_table(value: Any) -> bool:
            return isinstance(value, dict)

        def are_tables(value: Any) -> bool:
            return isinstance(value, list) and len(value) > 0 and all(map(is_table, value))

        apart = [name for name, value in table.items() if is_table(value) or are_tables(value)]
        apart = [name for name in apart if self.data.draw(st.booleans())]
        for name, value in table.items():
            if name not in apart:
                self.expected[*path, name] = self.line(f"{quoted(name)} = {inline(value)}")
        for name in apart:
            dotted = f"{header}.{quoted(name)}" if header else quoted(name)
            elements = enumerate(table[name]) if are_tables(table[name]) else [(None, table[name])]
            for index, each in elements:
                brackets = "[", "]"
                place: Path = (*path, name)
                if index is not None:
                    brackets, place = ("[[", "]]"), (*place, index)
                number = self.line(f"{brackets[0]}{dotted}{brackets[1]}")
                self.expected[place] = number
                self.expected.setdefault((*path, name), number)
                self.table(each, place, dotted)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables, st.data())
def test_any_text(table: dict[str, Any], data: st.DataObject) -> None:
    writer = Writer(data)
    writer.table(table, (), "")
    text = "\n".join(writer.lines)
    assert tomllib.loads(text) == table
    found = key_lines(text)
    assert found.keys() == paths_in(table)
    assert {path: found[path] for path in writer.expected} == writer.expected
