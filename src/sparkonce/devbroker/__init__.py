"""A real Apache Kafka on this machine, for demos and tests."""

from sparkonce.devbroker.cluster import DevBroker
from sparkonce.devbroker.settings import QUICK_JVM, BrokerSettings

__all__ = ["QUICK_JVM", "BrokerSettings", "DevBroker"]
