"""Decides which source a copy asks next. Pure.

After an interruption the same source is asked first: its session may still be open, with the same snapshot. A source
that does not answer, refuses, or is behind is passed over for the next one. A source with damaged bytes is not asked
again."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.ids import NodeId
from stelae.spi.members import Member


class SourceChoice:
    """The sources of one copy, in the order of the request."""

    def __init__(self, sources: Sequence[Member]) -> None:
        self._sources = sources
        self._damaged: set[NodeId] = set()
        self._position = 0
        self._stays = True
        self.asked = False  #: A source was asked before, so the copy pauses before it asks again.

    @property
    def stays(self) -> bool:
        """Whether the next source is the one that was asked last, so that its session must not be ended."""
        return self._stays

    def interrupted(self) -> None:
        """Note that the source which serves the copy was lost."""
        self._stays = True

    def damaged(self, source: NodeId) -> None:
        """Note that the bytes of a source are damaged."""
        self._damaged.add(source)

    def next(self) -> Member | None:
        """Return the source to ask, or ``None`` if the bytes of every source are damaged."""
        usable = [source for source in self._sources if source.node_id not in self._damaged]
        if not usable:
            return None
        self._position += not self._stays
        self.asked, self._stays = True, False
        return usable[self._position % len(usable)]
