"""The interface by which a demo reports its progress."""

from __future__ import annotations

from typing import Protocol


class DemoListener(Protocol):
    """Gets the progress and the events of a demo while it runs."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show what the demo does now, and how many rows are done. ``total`` is 0 if the number is not known."""
        ...

    def event(self, what: str) -> None:
        """Show an event."""
        ...
