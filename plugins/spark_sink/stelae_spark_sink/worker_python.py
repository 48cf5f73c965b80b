"""The Python with which Spark runs the data source, and the errors if it is one without Stelae."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stelae.spi.errors import ConfigError
from stelae_spark_sink.job_errors import SPARK_ERRORS

PYSPARK_PYTHON = "PYSPARK_PYTHON"
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, which has chosen the Python of the workers."""

_NOT_FOUND = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: stelae."


class SourceNotFound(ConfigError, code="SPARK_SOURCE_NOT_FOUND"):
    """The Python of Spark's workers has no Stelae, so that Spark does not know the data source."""


def is_submitted() -> bool:
    """Return whether ``spark-submit`` has started this process, which has a JVM then."""
    return GATEWAY_PORT in os.environ


def choose_worker_python() -> None:
    """Let the Python workers of a session that this process starts run under its own interpreter.

    Without it, they run under the ``python3`` on the path, which is another one if the environment is not activated.
    A choice of the user stays."""
    if not is_submitted():
        os.environ.setdefault(PYSPARK_PYTHON, sys.executable)


@contextmanager
def source_expected() -> Iterator[None]:
    """Raise ``SourceNotFound`` in place of the error of Spark, which does not name the cause."""
    try:
        yield
    except SPARK_ERRORS as error:
        if _NOT_FOUND not in str(error):
            raise
        raise SourceNotFound(
            "Spark does not find the data source 'stelae': its Python workers run under a Python without stelae[spark]."
            f" Before the session starts, set the environment variable {PYSPARK_PYTHON} to a Python that has it. The "
            f"one of this process: export {PYSPARK_PYTHON}={sys.executable}"
        ) from error
