"""Keeps the sessions of copies alive at their sources, from the offer until they are ended.

A session pins the log that follows the copy (``durability.md`` rule 25). Its source ends it if it hears nothing for the
time to live. A transport keeps a session alive only while it fetches, and a large replica may take longer than that to
be verified, installed and started. Without a keep-alive the source would collect the log meanwhile. The replica would
start below the first entry of every log, and would be copied again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from stelae.host.ports import Timer, Turns
from stelae.lifecycle.copy_environment import CopySources
from stelae.spi.copy import CopyNetwork
from stelae.spi.copy_plan import CopyOffer, CopySessionEnded
from stelae.spi.ids import TabletId
from stelae.spi.members import Member

log = logging.getLogger(__name__)

PART_OF_TTL = 3
"""A session is kept alive after this part of its time to live, so one lost message does not end it."""

INTERVAL_US_MIN = 20_000
"""The shortest time between two keep-alives, whatever time to live a source names."""


class KeptSessions(CopySources):
    """The sources of copies. The sessions that they open are kept alive. All calls are on the event loop.

    Args:
        sources: opens and ends sessions.
        turns: the clock and the timers of the loop."""

    def __init__(self, sources: CopySources, turns: Turns) -> None:
        self._sources = sources
        self._turns = turns
        self._timers: dict[str, Timer] = {}  # Of the sessions that are open, by their id.

    def begin(
        self,
        source: Member,
        tablet_id: TabletId,
        done: Callable[[CopyOffer | Exception], None],
        *,
        as_export: bool = False,
        ask_again: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask a source to open a session, and keep the session alive from the offer on."""

        def begun(found: CopyOffer | Exception) -> None:
            if isinstance(found, CopyOffer):
                self._stop_keeping(found.session)  # A source returns the session again that is open.
                self._wait(found)
            done(found)

        self._sources.begin(source, tablet_id, begun, as_export=as_export, ask_again=ask_again)

    def keep_alive(self, offer: CopyOffer, done: Callable[[Exception | None], None]) -> None:
        """Restart the time to live of a session now."""
        self._sources.keep_alive(offer, done)

    def keeps(self, offer: CopyOffer) -> bool:
        """Return whether a session is kept alive: its source has not ended it, as far as is known."""
        return offer.session in self._timers

    def committed_index(self, offer: CopyOffer, tablet_id: TabletId, done: Callable[[int | Exception], None]) -> None:
        """Ask the source of an offer up to which index it knows the log as committed."""
        self._sources.committed_index(offer, tablet_id, done)

    def end(self, offer: CopyOffer) -> None:
        """End a session, and keep it alive no longer."""
        self._stop_keeping(offer.session)
        self._sources.end(offer)

    def network(self) -> CopyNetwork:
        """Return the way to the sources for one run of a transport."""
        return self._sources.network()

    def stop(self) -> None:
        """Keep no session alive any more, because the node stops. Their sources end them."""
        for session in list(self._timers):
            self._stop_keeping(session)

    def _wait(self, offer: CopyOffer) -> None:
        at_us = self._turns.now_us() + max(offer.ttl_ms * 1000 // PART_OF_TTL, INTERVAL_US_MIN)
        self._timers[offer.session] = self._turns.call_at(at_us, partial(self._keep, offer))

    def _keep(self, offer: CopyOffer) -> None:
        """Send a keep-alive, and set the next timer at once: an answer may be lost."""
        if offer.session in self._timers:
            self._wait(offer)
            self._sources.keep_alive(offer, partial(self._kept, offer))

    def _kept(self, offer: CopyOffer, error: Exception | None) -> None:
        """Note the answer. After an error that may pass, the next timer tries again."""
        if isinstance(error, CopySessionEnded) and offer.session in self._timers:
            self._stop_keeping(offer.session)
            log.warning("copy session ended early source=%s session=%s reason=%s", offer.source, offer.session, error)

    def _stop_keeping(self, session: str) -> None:
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()
