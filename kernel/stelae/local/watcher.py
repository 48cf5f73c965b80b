"""Who watches the demo."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Is told what goes on, as it goes on."""

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """What is being done now, and how far it is in rows; without a total nobody can say."""
        ...

    def event(self, what: str) -> None:
        """Something has happened."""
        ...
