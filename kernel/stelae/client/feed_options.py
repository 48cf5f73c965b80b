"""The options of a change feed."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.client.arguments import flag, seconds
from stelae.client.write_methods import TIMEOUT_S

POLL_S = 1.0
"""Default time in seconds that a feed waits before it asks for changes again, if it follows the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How a feed is read.

    Raises:
        BadArgument: a value has another type, or is out of range.
    """

    follow: bool = False  #: Whether the feed waits for further changes.
    before_images: bool = False  #: Whether it reads the rows before the changes.
    fail_on_dropped_ranges: bool = True  #: Whether the feed fails if a range that it has read was dropped.
    poll_s: float = POLL_S  #: How long it waits between two rounds, in seconds.
    timeout_s: float = TIMEOUT_S  #: How long a page is retried, in seconds.

    def __post_init__(self) -> None:
        flag("follow", self.follow)
        flag("before_images", self.before_images)
        flag("fail_on_dropped_ranges", self.fail_on_dropped_ranges)
        seconds("poll_s", self.poll_s, above_0=True)
        seconds("timeout_s", self.timeout_s)
