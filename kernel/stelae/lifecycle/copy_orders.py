"""Carries out the orders of operators about copies to this node: pause, resume, cancel.

- A *paused* copy fetches nothing and keeps its session and what has arrived. One that has not begun does not begin.
  A pause ends by itself.
- A *cancelled* copy ends like a failed copy: the replica is again what it was before the copy. The fetched data is
  removed, and the tablet is *barred*: leaders ask again within a second, and are refused for a while. So masters have
  the time to place the replica elsewhere. A copy past its commit point is complete, and not cancelled.

All orders may be repeated. Orders are not persisted: after a restart, paused copies continue, and cancelled copies may
begin again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stelae.host.ports import Turns
from stelae.lifecycle.tablet_copies import TabletCopies
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId

CANCELLED_BY_OPERATOR = "an operator cancelled the copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """The result of an order. Each field has its tablets in order."""

    changed: tuple[TabletId, ...]  #: Tablets that the order changed.
    same: tuple[TabletId, ...] = ()  #: Tablets that were in the requested state already.
    complete: tuple[TabletId, ...] = ()  #: Copies that were complete before they could be cancelled.


class CopyOrders:
    """The orders of operators, on the event loop of one node."""

    def __init__(self, copies: TabletCopies, turns: Turns) -> None:
        self._copies = copies
        self._turns = turns

    def pause(self, tablet_id: TabletId | None, for_us: int) -> OrderResult:
        """Pause one copy, or with ``None`` every copy to this node that is in progress or begins in that time.

        Raises ``CallerError`` if no copy of the tablet is in progress or waits."""
        now_us, holds = self._turns.now_us(), self._copies.holds
        chosen = self._chosen(tablet_id)
        before = [one for one in chosen if holds.is_paused(one, now_us)]
        holds.pause(tablet_id, now_us + for_us, now_us)
        self._copies.apply_holds()
        return _result(chosen, before)

    def resume(self, tablet_id: TabletId | None) -> OrderResult:
        """End the pause of one tablet, or of all, and let copies that were cancelled begin again.

        Raises ``CallerError`` if all copies to this node are paused, and the order is for one of them only."""
        now_us, holds = self._turns.now_us(), self._copies.holds
        if tablet_id is not None and holds.pauses_all(now_us):
            raise CallerError("all copies to this node are paused, not this one alone; resume all of them with --all")
        held = set(holds.held(now_us))
        if holds.pauses_all(now_us):
            held |= {*self._copies.running, *self._copies.waiting}
        chosen = sorted(held) if tablet_id is None else [tablet_id]
        holds.resume(tablet_id)
        self._copies.apply_holds()
        return _result(chosen, [one for one in chosen if one not in held])

    def cancel(self, tablet_id: TabletId | None, bar_us: int, done: Callable[[OrderResult], None]) -> None:
        """Cancel one copy, or with ``None`` all to this node, and keep them from beginning again for a time.

        ``done`` is called once, when all of them have ended and what they have fetched is removed. That may take as
        long as what a copy does between two looks at its cancellation, such as writing a piece of the log.

        Raises ``CallerError`` if no copy of the tablet is in progress or waits; nothing was done."""
        copies, now_us = self._copies, self._turns.now_us()
        if tablet_id is not None and copies.holds.is_barred(tablet_id, now_us) and tablet_id not in copies.running:
            copies.holds.bar(tablet_id, now_us + bar_us, now_us)
            done(OrderResult(changed=(), same=(tablet_id,)))
            return
        chosen = self._chosen(tablet_id)
        left, complete = set(chosen), set[TabletId]()

        def ended(one: TabletId, *, committed: bool) -> None:
            left.discard(one)
            if committed:
                complete.add(one)
            if not left:
                cancelled = [each for each in chosen if each not in complete]
                done(OrderResult(changed=tuple(cancelled), complete=tuple(sorted(complete))))

        if not chosen:
            done(OrderResult(changed=()))
        for one in chosen:
            self._cancel(one, now_us, bar_us, lambda committed, one=one: ended(one, committed=committed))  # type: ignore[misc]

    def _cancel(self, tablet_id: TabletId, now_us: int, bar_us: int, ended: Callable[[bool], None]) -> None:
        copies = self._copies
        copies.holds.bar(tablet_id, now_us + bar_us, now_us)
        copies.apply_holds()
        if copies.cancel(tablet_id, CANCELLED_BY_OPERATOR):
            copies.at_end(tablet_id, ended)
        else:
            copies.drop_waiting(tablet_id, ended)

    def _chosen(self, tablet_id: TabletId | None) -> list[TabletId]:
        known = {*self._copies.running, *self._copies.waiting}
        if tablet_id is None:
            return sorted(known)
        if tablet_id not in known:
            fact = f"no copy of tablet {tablet_id} to this node is in progress or waits"
            raise CallerError(f"{fact}; see the copies with: stelae copy list")
        return [tablet_id]


def _result(chosen: Iterable[TabletId], same: list[TabletId]) -> OrderResult:
    return OrderResult(changed=tuple(one for one in chosen if one not in same), same=tuple(same))
