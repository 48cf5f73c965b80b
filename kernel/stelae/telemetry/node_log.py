"""Starts a node's log: on standard error, in one of two formats, with limits on repeated lines."""

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
    """Send every log line of this process to ``stream`` (default: standard error), and nowhere else.

    Return the formatter. Set its ``node_id`` once it is known."""
    formatter = JsonLines() if settings.format == "json" else TextLines()
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter)
    handler.addFilter(RepeatLimit(settings, metrics, time.monotonic))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    return formatter
