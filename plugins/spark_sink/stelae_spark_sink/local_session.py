"""Starts a Spark session on this machine, for the demo and for benchmarks."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stelae.spi.errors import StelaeError
from stelae.spi.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


class NoSpark(StelaeError, code="NO_SPARK"):
    """Spark does not start on this machine."""


def check_spark(wanted_by: str) -> None:
    """Check, before anything else starts, that Spark can start.

    Raises:
        MissingExtra: PySpark is not installed.
        NoSpark: there is no Java.
    """
    require("pyspark", extra="spark", wanted_by=wanted_by)
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise NoSpark(f"{wanted_by} needs Java 17 or newer: install it, and put java on the path or set JAVA_HOME")


def ignore_pandas_warning() -> None:
    """Do not show the warning of PySpark about pandas 3: our commands give Spark Arrow batches alone, never pandas."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def local_session(
    name: str, log_path: Path, *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a JVM with a session. Its Python workers run under the interpreter of this process.

    Args:
        name: name of the application.
        log_path: file to which the output of the JVM and of its Python workers is appended.
        master: how many tasks run at the same time, as Spark writes it.
        settings: settings of Spark, which override the defaults.

    Raises:
        NoSpark: the JVM did not start; the message names the log.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    ignore_pandas_warning()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, value)
    try:
        with _standard_error_to(log_path):
            return builder.getOrCreate()
    except PySparkException as error:
        raise NoSpark(f"Spark did not start: {error}; its log is {log_path}") from error


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
