"""A query with Spark's own Kafka source, as a program of its own, in which nothing of ours is imported.

read      {"mode": "read", "options": {…}, "output": …}: a bounded read, a row as a line of JSON
stream    {"mode": "stream", …, "checkpoint": …}: all that is there, a micro-batch as a line of JSON; with
          `die_in_batch` the program ends in the middle of that one, without a word to Spark
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FIELDS = ["partition", "offset", "hex(key)", "hex(value)", "unix_millis(timestamp)", "timestampType"]
HEADERS = "transform(headers, h -> struct(h.key, hex(h.value))) AS headers"


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.jars", job["connector"])
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    output = Path(job["output"])
    if job["mode"] == "read":
        rows = spark.read.format("kafka").options(**job["options"]).load().selectExpr(*FIELDS, HEADERS)
        output.write_text("".join(json.dumps(row) + "\n" for row in rows.collect()))
        return

    def write(rows: DataFrame, batch_id: int) -> None:
        if batch_id == job.get("die_in_batch"):
            os._exit(1)
        values = [row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect()]
        with output.open("a") as file:
            file.write(json.dumps(sorted(values)) + "\n")

    stream = spark.readStream.format("kafka").options(**job["options"]).load()
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", job["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
