"""Where a node's log goes: standard error, in one of two forms, without what repeats."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from stelae.spi.services import Metrics
from stelae.telemetry.log_limit import RepeatLimit
from stelae.telemetry.log_lines import JsonLines, TextLines
from stelae.telemetry.settings import LoggingSettings


def start_log(settings: LoggingSettings, metrics: Metrics, stream: TextIO | None = None) -> JsonLines | TextLines:
    """Send everything that is logged in this process to ``stream`` (standard error), and nowhere else.

    Return the form, whose ``node_id`` is to be set once it is known."""
    form = JsonLines() if settings.format == "json" else TextLines()
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(form)
    handler.addFilter(RepeatLimit(settings, metrics, time.monotonic))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    return form
