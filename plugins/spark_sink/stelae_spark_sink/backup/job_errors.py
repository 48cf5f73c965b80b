"""Finds the fact in an error of a Spark job, which comes with the stacks of Python and of the JVM."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""The errors of Spark jobs."""

_OURS = re.compile(r"^(?:stelae[\w.]*\.)(\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def first_fact(error: BaseException) -> str:
    """Return the message of our own error that failed a task, or else the innermost cause, or else the first line."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1])
    causes = _CAUSE.findall(text)
    return str(causes[-1]) if causes else (text.strip().splitlines() or [type(error).__name__])[0]
