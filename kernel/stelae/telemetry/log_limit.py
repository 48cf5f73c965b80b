"""Limits repeated log lines, so that they cannot fill the disk.

Of equal messages, ``repeats_max`` are written in a window of time. One place in the code writes at most ``lines_max``
lines in a window, even if they differ: a thousand tablets may each log their start, but a loop with a defect may not
log without end. The next line that is written says how many were left out."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from stelae.spi.services import Metrics
from stelae.telemetry.settings import LoggingSettings

KINDS_MAX = 4096
"""The most messages and places that are remembered. The one that was used longest ago is forgotten."""


@dataclass(slots=True)
class _CountWindow:
    """The lines of one message or place in the current window."""

    begun_s: float
    written: int = 0
    left_out: int = 0


class RepeatLimit(logging.Filter):
    """A filter for a handler, which calls it under its lock. It counts the lines that pass and those left out.

    Args:
        settings: window and limits.
        metrics: gets ``logging_lines_<level>`` and ``logging_lines_suppressed``.
        now_s: monotonic seconds.
    """

    def __init__(self, settings: LoggingSettings, metrics: Metrics, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._settings = settings
        self._metrics = metrics
        self._now_s = now_s
        self._windows: OrderedDict[Hashable, _CountWindow] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is written. If so, its attribute ``suppressed`` is the number left out before it."""
        try:
            text = record.getMessage()
        except Exception:  # The formatter reports the error.
            text = str(record.msg)
        place = self._window((record.pathname, record.lineno))
        kind = self._window((record.name, record.levelno, text))
        if place.written >= self._settings.lines_max or kind.written >= self._settings.repeats_max:
            window = kind if kind.written >= self._settings.repeats_max else place
            window.left_out += 1
            self._metrics.count("logging_lines_suppressed")
            return False
        record.suppressed = place.left_out + kind.left_out
        for window in (place, kind):
            window.written += 1
            window.left_out = 0
        self._metrics.count(f"logging_lines_{record.levelname.lower()}")
        return True

    def _window(self, kind: Hashable) -> _CountWindow:
        now_s = self._now_s()
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _CountWindow(now_s)
            if len(self._windows) > KINDS_MAX:
                self._windows.popitem(last=False)
        elif now_s - window.begun_s >= self._settings.window_s:
            window.begun_s, window.written = now_s, 0
        self._windows.move_to_end(kind)
        return window
