"""Settings for Spark sessions that live for seconds: starting them is most of their work."""

from __future__ import annotations

QUICK_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    # Half compiled at once is better than well compiled when it is over. The stack is that of `local_session`.
    "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
