"""Shows on standard error how far a Spark job is: the tasks of its stages that are done."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from types import TracebackType

from pyspark.sql import SparkSession

EVERY_S = 5.0
"""Seconds between two lines if standard error is not a terminal."""

LIVE_EVERY_S = 0.5
"""Seconds between two updates of the line on a terminal."""

_GROUP = "spark.jobGroup.id"


class JobProgress:
    """Shows the progress of the Spark jobs of a ``with`` block.

    Args:
        spark: a session without Connect.
        what: the words at the beginning of each line.
        wanted: whether to show progress. ``None``: only on a terminal.
    """

    def __init__(self, spark: SparkSession, what: str, wanted: bool | None) -> None:
        self._context = spark.sparkContext
        self._what = what
        self._live = sys.stderr.isatty()
        self._shows = self._live if wanted is None else wanted
        self._group = f"stelae/{uuid.uuid4().hex}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="stelae-progress", daemon=True)
        self._width = 0

    def __enter__(self) -> JobProgress:
        self._outer = self._context.getLocalProperty(_GROUP)
        self._context.setJobGroup(self._group, self._what)
        self._began_s = time.monotonic()
        if self._shows:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ended.set()
        if self._shows:
            self._thread.join()
            outcome = "failed" if kind is not None else "done"
            self._line(f"{self._what}: {outcome} after {time.monotonic() - self._began_s:.0f} s")
            if self._live:
                sys.stderr.write("\n")
        self._context.setLocalProperty(_GROUP, self._outer)  # type: ignore[arg-type]
        self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def _show(self) -> None:
        while not self._ended.wait(LIVE_EVERY_S if self._live else EVERY_S):
            done, count = self._tasks()
            if count:
                self._line(f"{self._what}: {done} of {count} parts, {time.monotonic() - self._began_s:.0f} s")

    def _tasks(self) -> tuple[int, int]:
        """Return how many tasks are done and how many there are, of all stages that are known by now."""
        status = self._context.statusTracker()
        jobs = [status.getJobInfo(number) for number in status.getJobIdsForGroup(self._group)]
        stages = [status.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    def _line(self, text: str) -> None:
        if self._live:
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
