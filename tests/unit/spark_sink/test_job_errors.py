"""The fact in an error of a Spark job."""

from __future__ import annotations

import pytest

from stelae_spark_sink.job_errors import first_fact

OURS = """Job aborted due to stage failure: Task 0 in stage 4.0 failed 3 times
Traceback (most recent call last):
  File "/site-packages/stelae_spark_sink/backup/table_parts.py", line 65, in _rows_of
    raise CallerError(
stelae.spi.errors.CallerError: table 'readings' keeps its history since 2026-06-01T12:00:00+00:00

Driver stacktrace:
Caused by: org.apache.spark.SparkException: Task failed while writing rows.
"""
OF_SPARK = """An error occurred while calling o88.parquet.
: org.apache.spark.SparkException: Job aborted.
Caused by: org.apache.spark.SparkException: Encountered error while reading file part-0.parquet.
Caused by: java.lang.RuntimeException: part-0.parquet is not a Parquet file
"""
OF_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/pyspark.zip/pyspark/worker.py", line 1, in read_udfs
    func, profiler = read_udfs(
                     ^^^^^^^^^^
ModuleNotFoundError: No module named 'stelae_spark_sink'
"""


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (OURS, "table 'readings' keeps its history since 2026-06-01T12:00:00+00:00"),
        (OF_PYTHON, "ModuleNotFoundError: No module named 'stelae_spark_sink'"),
        (OF_SPARK, "java.lang.RuntimeException: part-0.parquet is not a Parquet file"),
        ("\n[PATH_NOT_FOUND] no such path\nmore", "[PATH_NOT_FOUND] no such path"),
        ("", "OSError"),
    ],
)
def test_the_fact_is_our_error_or_that_of_python_or_the_innermost_cause_or_the_first_line(text: str, fact: str) -> None:
    assert first_fact(OSError(text)) == fact
