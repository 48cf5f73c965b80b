"""Finds the fact in an error of a Spark job, which comes with the stacks of Python and of the JVM."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""The errors of Spark jobs."""

_OURS = re.compile(r"^stelae[\w.]*\.\w+: (.+)$", re.MULTILINE)
_OF_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def first_fact(error: BaseException) -> str:
    """Return the fact in an error.

    It is the message of our own error that failed a task, or else the error of a Python worker, or else the innermost
    cause, or else the first line."""
    text = str(error)
    for pattern in (_OURS, _OF_PYTHON, _CAUSE):
        found = pattern.findall(text)
        if found:
            return str(found[-1])
    return (text.strip().splitlines() or [type(error).__name__])[0]
