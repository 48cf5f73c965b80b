"""Offers filter pushdown whether Spark's setting for it is on or off.

With the setting off, Spark refuses every reader that overrides ``pushFilters``. To find out, it compares ``__func__``
of the reader's method with the function of its own class. :class:`PushedFilters` passes that comparison. With the
setting on, Spark calls it.

This depends on private parts of PySpark: the comparison, and the name of a local variable. ``tests/spark`` checks
both."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader

log = logging.getLogger(__name__)

SETTING = "spark.sql.python.filterPushdown.enabled"
"""The setting of Spark that lets Python data sources take filters."""

_LOCAL = "enable_pushdown"
"""The local variable in which Spark's planner has the setting when it looks at ``pushFilters``."""

_warned = False


class PushedFilters:
    """A ``pushFilters`` that Spark takes for the one of its own class until it calls it."""

    def __init__(self, push: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._push = push

    @property
    def __func__(self) -> Any:
        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Sequence[Any]:
        """Take some of the filters, and return those that Spark must judge."""
        return self._push(filters)


def warn_once_if_off() -> None:
    """Log a warning if the planner two frames above has the setting off. Once for each process."""
    global _warned
    if not _warned and sys._getframe(2).f_locals.get(_LOCAL) is False:
        _warned = True
        log.warning(
            "%s is off, so every query reads all rows of its tables. Turn it on with spark.conf.set(%r, True), or give "
            "filters with the option 'where'",
            SETTING,
            SETTING,
        )
