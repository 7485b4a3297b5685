"""The Python examples and pipeline files of the documents, run as they stand but for the broker's address and the
folder of checkpoints, and judged by what librdkafka finds in their output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkonce.devbroker import DevBroker
from tests.broker.fetch_samples import rows_by_librdkafka
from tests.documents import examples, localised, page
from tests.shop import COUNT, FIRST, ORDERS, Shop, counted, expected

Rows = Counter[tuple[Any, ...]]
LEVELS = {"ann": "gold", "bob": "basic"}
WINDOW = timedelta(minutes=5)


@pytest.fixture(scope="module")
def shop(broker: DevBroker) -> Shop:
    return Shop(broker)


def big(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [order for order in orders if order["amount"] >= 500]


def filtered() -> dict[str, Rows]:
    return {"big-orders": expected(big(ORDERS), ["id", "user", "amount"])}


def joined() -> dict[str, Rows]:
    rows = []
    for order in ORDERS:
        level = LEVELS.get(order["user"])
        fields = {name: order[name] for name in ("id", "user", "amount")} | ({"level": level} if level else {})
        rows.append((order["user"].encode(), fields))
    return {"orders-with-levels": counted(rows)}


def windows() -> dict[str, Rows]:
    """Those that end a minute before the newest order, or earlier."""
    totals: Counter[tuple[datetime, str]] = Counter()
    newest = max(datetime.fromisoformat(order["at"]) for order in ORDERS)
    for order in ORDERS:
        at = datetime.fromisoformat(order["at"])
        start = FIRST + (at - FIRST) // WINDOW * WINDOW
        if start + WINDOW <= newest - timedelta(minutes=1):
            totals[start, order["country"]] += order["amount"]
    assert 3 < len(totals) < COUNT
    rows = [
        (country, {"start": start, "country": country, "total": total}) for (start, country), total in totals.items()
    ]
    return {"totals": counted((country.encode(), fields) for country, fields in rows)}


def without_duplicates() -> dict[str, Rows]:
    return {"orders-once": Counter(expected(ORDERS, ["id", "user", "amount"]).keys())}


def routed() -> dict[str, Rows]:
    fields = ["id", "user", "country", "amount"]
    by_country = {
        f"orders-{country.lower()}": expected([order for order in ORDERS if order["country"] == country], fields)
        for country in ("DE", "FR", "IN")
    }
    return {**by_country, "review": expected(big(ORDERS), fields)}


RECIPES: dict[str, Callable[[], dict[str, Rows]]] = {
    "Filter": filtered,
    "Join with a table": joined,
    "Windowed aggregation": windows,
    "Deduplication": without_duplicates,
    "Fan-out to several topics": routed,
}
COOKBOOK = page("COOKBOOK.md")


def found(shop: Shop, topic: str) -> Rows:
    """Times of windows are written in the zone of the session."""
    rows: Rows = Counter()
    for (key, *fields), count in shop.values(topic).items():
        moments = [(name, datetime.fromisoformat(value) if name == "start" else value) for name, value in fields]
        rows[(key, *moments)] += count
    return rows


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe(recipe: str, shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    blocks = [example for example in examples(COOKBOOK) if example.section == recipe]
    [file] = [example for example in blocks if example.language == "toml"]
    program, *modules = (example for example in blocks if example.language == "python")
    wanted = RECIPES[recipe]()
    shop.empty(*wanted)
    shop.run_program(program, tmp_path)
    assert {topic: found(shop, topic) for topic in wanted} == wanted
    # The file has a checkpoint of its own, and writes the same again.
    shop.run_file(file, modules, spark, tmp_path / "file")
    assert {topic: found(shop, topic) for topic in wanted} == {topic: rows + rows for topic, rows in wanted.items()}


def test_there_are_six_recipes() -> None:
    sections = {example.section for example in examples(COOKBOOK, "python")}
    assert sections == {*RECIPES, "Kafka and PostgreSQL"}


# The other pages: their programs, one after the other.


def test_the_source(shop: Shop, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, dead_letters, metrics = examples(page("SOURCE.md"), "python")
    rows = shop.run_program(read, tmp_path)["rows"]
    assert rows.isStreaming
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    shop.empty("good-payments", "bad-payments")
    shop.send("payments", [b'{"id": 1, "amount": 2.5}', b"none of it", b'{"id": 2, "amount": 1.0}'])
    query = shop.run_program(dead_letters, tmp_path, spark=spark)["query"]
    fields = sorted(fields for (_, *fields) in shop.values("good-payments"))
    assert fields == [[("amount", 1.0), ("id", 2)], [("amount", 2.5), ("id", 1)]]
    [letter] = rows_by_librdkafka(shop.broker, "bad-payments", 2)
    assert letter.value == b"none of it"
    assert ("sparkonce.topic", b"payments") in letter.headers
    capsys.readouterr()
    shop.run_program(metrics, tmp_path, query=query)
    assert "payments" in capsys.readouterr().out


def test_a_pipeline_from_python(
    shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = examples(page("PIPELINES.md"), "toml")
    [program] = examples(page("PIPELINES.md"), "python")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.toml").write_text(localised(first.text, shop.broker.bootstrap_servers, tmp_path))
    shop.empty("big-orders")
    shop.run_program(program, tmp_path)
    wanted = expected([order for order in ORDERS if order["amount"] > 100], ["id", "user", "amount"])
    assert shop.values("big-orders") == wanted


def test_monitoring(shop: Shop, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = examples(page("OPERATIONS.md"), "python")
    shop.empty("watched-copy")
    sink = shop.run_program(program, tmp_path)["sink"]
    assert shop.values("watched-copy") == expected(ORDERS, list(ORDERS[0]))
    said = capsys.readouterr().out
    assert re.search(r"behind by 0 offsets, \d", said)
    assert f"the last one: {len(ORDERS)} records, open for 0." in said
    assert sink.totals.aborted == 0


def test_after_the_migration(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    [program] = [example for example in examples(page("MIGRATION.md"), "python") if example.reason is None]
    shop.empty("migrated-orders")
    shop.run_program(program, tmp_path)
    assert shop.values("migrated-orders") == expected(big(ORDERS), list(ORDERS[0]))
