"""The demo's job, as a user would write it: orders in, big orders out, each exactly once."""

from __future__ import annotations

import sys

from pyspark.sql import functions as sql

import sparkonce
from sparkonce.spark.session import SHORT_LIVED, local_session

ORDER = "id BIGINT, user STRING, amount DOUBLE, currency STRING"
BIG_AMOUNT = 500
VAT = 0.19


def main(bootstrap_servers: str, checkpoint: str) -> None:
    """Runs until it is killed."""
    spark = local_session("big-orders", "local[2]", SHORT_LIVED)
    sparkonce.register(spark)
    orders = (
        spark.readStream.format("sparkonce")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40_000)
        .load()
    )
    order = sql.from_json(sql.col("value").cast("string"), ORDER)
    big_orders = (
        orders.select("key", "timestamp", order.alias("order"))
        .where(sql.col("order.amount") >= BIG_AMOUNT)
        .withColumn("order", sql.col("order").withField("vat", sql.round(sql.col("order.amount") * VAT, 2)))
        .select("key", "timestamp", sql.to_json("order").alias("value"))
    )
    sink = sparkonce.KafkaSink(
        bootstrap_servers,
        topic="big-orders",
        transactional_id="big-orders",
        offsets_group="big-orders",
    )
    query = sink.start(big_orders, checkpoint, trigger="200 milliseconds")
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
