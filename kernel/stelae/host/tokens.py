"""Numbers that tie what a core was asked to what it answers."""


class Tokens:
    """Ascending tokens of one replica, never reused within a run."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return a new token."""
        self._last += 1
        return self._last
