"""The synchronous change feed. It runs the ``async`` one on an event loop in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stelae.client.change_feed import AsyncChangeFeed
from stelae.client.loop_thread import LoopThread
from stelae.client.tokens import ScanToken


class ChangeFeed:
    """The changes of a table after a time or a position; see ``AsyncChangeFeed``. Iteration yields Arrow batches."""

    def __init__(self, loop_thread: LoopThread, feed: AsyncChangeFeed) -> None:
        self._loop_thread = loop_thread
        self._feed = feed

    @property
    def position(self) -> str:
        """The position after the last batch that was yielded; see ``AsyncChangeFeed.position``."""
        return self._feed.position

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of the batches, in order."""
        return self._feed.columns

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of the batches."""
        return self._feed.arrow_schema

    def __iter__(self) -> Iterator[Any]:
        return self._loop_thread.each(self._feed.batches(), self._feed.put_back)

    def next_position(self, *, rows_max: int | None = None, not_after: int | None = None) -> str:
        """Return the position at the end of the next round; see ``AsyncChangeFeed.next_position``."""
        return self._loop_thread.run(self._feed.next_position(rows_max=rows_max, not_after=not_after))

    def last_time(self) -> int:
        """Return a hybrid timestamp for ``not_after``; see ``AsyncChangeFeed.last_time``."""
        return self._loop_thread.run(self._feed.last_time())

    def tokens(self, *, target_bytes: int | None = None) -> list[ScanToken]:
        """Divide the next round into tokens; see ``AsyncChangeFeed.tokens``."""
        return self._loop_thread.run(self._feed.tokens(target_bytes=target_bytes))
