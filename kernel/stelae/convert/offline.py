"""Services for a log engine in a command, without a running node: inline workers and a progress meter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.errors import StelaeError


class InlineWorkers:
    """``Workers`` of a command. There is no event loop, so ``submit`` runs the work at once."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """Run ``work``, then ``done`` with its result or its operating error. Any other exception is raised."""
        try:
            result = work()
        except (StelaeError, OSError) as error:
            result = error
        if done is not None:
            done(result)


class ProgressMeter:
    """Receives the progress of long work. This class ignores it; commands have one that prints."""

    def begin(self, phase: str, entries: int) -> None:
        """A phase begins, with the number of entries that it will process. ``phase`` is a word for people."""

    def add(self, entries: int, size_bytes: int) -> None:
        """``entries`` more entries are done; their bodies have ``size_bytes`` bytes."""


SILENT = ProgressMeter()
