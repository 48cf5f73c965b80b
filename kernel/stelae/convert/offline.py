"""What a log engine is handed when no node runs: workers that work at once, and somebody who watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.errors import StelaeError


class InlineWorkers:
    """``Workers`` of a command: there is no event loop to keep free, so work runs where it is asked for."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work``, then ``done`` with its result or its error; a defect is raised."""
        try:
            result = work()
        except (StelaeError, OSError) as error:
            result = error
        if done is not None:
            done(result)


class ProgressMeter:
    """Is told how far long work has come; this one is silent, a command has one that prints."""

    def begin(self, phase: str, entries: int) -> None:
        """Work on so many entries begins; ``phase`` is a word for people."""

    def add(self, entries: int, size_bytes: int) -> None:
        """So many more entries are done, with so many bytes of bodies."""


SILENT = ProgressMeter()
