"""The cluster and the session of ``tests/spark``, for long runs of Spark. Other tests have fixtures of their own."""

from tests.spark.conftest import cache, client, cluster, masters, spark

__all__ = ["cache", "client", "cluster", "masters", "spark"]
