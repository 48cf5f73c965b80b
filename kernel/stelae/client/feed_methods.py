"""The methods of tables that read change feeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from stelae.client.change_feed import AsyncChangeFeed
from stelae.client.feed_arguments import changes_of, feed_of
from stelae.client.feed_options import POLL_S, FeedOptions
from stelae.client.loop_thread import LoopThread
from stelae.client.present_table import PresentTable
from stelae.client.read_options import column_ids
from stelae.client.sync_change_feed import ChangeFeed
from stelae.client.times import At
from stelae.client.tokens import ScanToken
from stelae.client.write_methods import TIMEOUT_S


class AsyncFeedMethods(ABC):
    """The methods of an ``async`` table that read its change feed."""

    @abstractmethod
    def _present(self) -> PresentTable:
        """Return the table as its feeds see it."""
        ...

    def changes(
        self,
        since: At | str | None = None,
        until: At | str | None = None,
        columns: Sequence[str] | None = None,
        *,
        follow: bool = False,
        before_images: bool = False,
        fail_on_dropped_ranges: bool = True,
        poll_s: float = POLL_S,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncChangeFeed:
        """Describe a change feed: first the changes since a time or a position, then, with ``follow``, all later ones.

        Args:
            since: a ``datetime`` or a hybrid timestamp, or the ``position`` of a feed of this table; ``None``: begin
                with all rows of the table.
            until: the same; the feed ends there. ``None``: it ends with the last write before it was read.
            columns: names of columns, in the order of the result. Key columns that are not among them come first.
            follow: do not end: wait for further changes.
            before_images: also read the rows as they were when the round began.
            fail_on_dropped_ranges: raise ``RangeDropped`` if a range was dropped that the feed has read, by its
                position, or has to read. A copy would keep its rows, because they do not appear as deleted. With
                ``False`` the feed goes on without the range.
            poll_s: how long a feed that follows waits before it asks for changes again, in seconds.
            timeout_s: how long a page is retried.

        Raises:
            SchemaMismatch: a column is unknown, or has the name of a column of the feed.
            BadPosition: the position is none, or one of another table.
            CallerError: ``since`` is after ``until``, or ``until`` is given with ``follow``.
        """
        options = FeedOptions(
            follow=follow,
            before_images=before_images,
            fail_on_dropped_ranges=fail_on_dropped_ranges,
            poll_s=poll_s,
            timeout_s=timeout_s,
        )
        table = self._present()
        return feed_of(table, since, until, column_ids(table.schema, columns), options)

    def open_changes(
        self,
        token: ScanToken,
        *,
        before_images: bool = False,
        fail_on_dropped_ranges: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncGenerator[Any, None]:
        """Yield the changes of a token of a change feed, as ``pyarrow.RecordBatch`` objects.

        Raises:
            BadToken: the token is of another table.
            RangeDropped: it reads a range that was dropped, and ``fail_on_dropped_ranges`` is true.
            SchemaMismatch: a column that the token reads was dropped.
        """
        table = self._present()
        table.check(token)
        options = FeedOptions(
            before_images=before_images, fail_on_dropped_ranges=fail_on_dropped_ranges, timeout_s=timeout_s
        )
        return changes_of(table, token, options)


class FeedMethods:
    """The methods of a table that read its change feed, for the synchronous client."""

    _loop_thread: LoopThread
    _table: AsyncFeedMethods

    def changes(
        self,
        since: At | str | None = None,
        until: At | str | None = None,
        columns: Sequence[str] | None = None,
        *,
        follow: bool = False,
        before_images: bool = False,
        fail_on_dropped_ranges: bool = True,
        poll_s: float = POLL_S,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeFeed:
        """Describe a change feed; see :meth:`AsyncFeedMethods.changes`."""
        described = self._table.changes(
            since,
            until,
            columns,
            follow=follow,
            before_images=before_images,
            fail_on_dropped_ranges=fail_on_dropped_ranges,
            poll_s=poll_s,
            timeout_s=timeout_s,
        )
        return ChangeFeed(self._loop_thread, described)

    def open_changes(
        self,
        token: ScanToken,
        *,
        before_images: bool = False,
        fail_on_dropped_ranges: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> Iterator[Any]:
        """Yield the changes of a token of a change feed; see :meth:`AsyncFeedMethods.open_changes`."""
        opened = self._table.open_changes(
            token, before_images=before_images, fail_on_dropped_ranges=fail_on_dropped_ranges, timeout_s=timeout_s
        )
        return self._loop_thread.each(opened)
