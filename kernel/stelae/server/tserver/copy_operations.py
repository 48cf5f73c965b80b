"""Serves the requests of operators about copies: lists, pauses, resumes, cancels and limits them."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.lifecycle.copy_orders import CopyOrders, OrderResult
from stelae.lifecycle.copy_states import CopyPhase
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.tablet_copies import TabletCopies
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.waiting_copies import WaitingCopy
from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_list_messages import (
    BYTES_PER_S_MAX,
    COPIES,
    HELD_MS_MAX,
    HELD_MS_MIN,
    LIMIT_COPIES,
    ORDER_COPIES,
    CopiesReply,
    CopiesRequest,
    CopyLimits,
    CopyLine,
    CopyOrder,
    LimitCopies,
    OrderCopies,
    OrderedCopies,
    ReportedCopyPhase,
)
from stelae.server.frames import only_frame
from stelae.server.tserver.copy_service import CopyService
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.spi.copy import CopySource, CopyTarget
from stelae.spi.errors import CallerError, Unsupported
from stelae.spi.ids import TabletId, tablet_id
from stelae.wire.requests import Request


class CopyOperations:
    """The requests of operators on one node. A ``Service`` (``stelae.spi.hooks``).

    Args:
        targets: the copies to this node.
        served: the copies from it.
    """

    def __init__(self, node: Node, targets: CopyTargetService, served: CopyService) -> None:
        self._node = node
        self._targets = targets
        self._served = served

    def start(self) -> None:
        """Register the handlers."""
        serve = self._node.messenger.serve
        serve(COPIES, self._list)
        serve(ORDER_COPIES, self._order)
        serve(LIMIT_COPIES, self._limit)

    def stop(self) -> None:
        """Do nothing: the service holds no resources."""

    # -- list ------------------------------------------------------------------------------------

    def _list(self, request: Request) -> None:
        decode(only_frame(request), CopiesRequest)
        request.reply([encode(self.describe())])

    def describe(self) -> CopiesReply:
        """Return the copies to this node and their limits."""
        copies = self._targets.copies
        if copies is None:
            return CopiesReply(copies=())
        now_us = self._node.turns.now_us()
        lines = [_line(tablet, copy) for tablet, copy in copies.running.items()]
        lines += [_waiting_line(tablet, one) for tablet, one in copies.waiting.items() if tablet not in copies.running]
        return CopiesReply(
            copies=tuple(sorted(lines, key=lambda line: line.tablet_id)),
            limits=self._limits(),
            paused=copies.holds.pauses_all(now_us),
            cancelled=tuple(sorted(copies.holds.barred(now_us))),
        )

    # -- pause, resume, cancel -------------------------------------------------------------------

    def _order(self, request: Request) -> None:
        asked = decode(only_frame(request), OrderCopies)
        if asked.tablet_id is not None:
            tablet_id(asked.tablet_id)
        if asked.order is not CopyOrder.RESUME and not HELD_MS_MIN <= asked.for_ms <= HELD_MS_MAX:
            fact = f"{asked.for_ms} ms is not a time for which a copy can be held"
            raise CallerError(f"{fact}: pass {HELD_MS_MIN // 1000} to {HELD_MS_MAX // 1000} seconds")
        orders, for_us = CopyOrders(self._copies(), self._node.turns), asked.for_ms * 1000

        def done(result: OrderResult) -> None:
            found = OrderedCopies(changed=result.changed, same=result.same, complete=result.complete)
            request.reply([encode(found)])

        match asked.order:
            case CopyOrder.PAUSE:
                done(orders.pause(asked.tablet_id, for_us))
            case CopyOrder.RESUME:
                done(orders.resume(asked.tablet_id))
            case CopyOrder.CANCEL:
                orders.cancel(asked.tablet_id, for_us, done)

    def _copies(self) -> TabletCopies:
        if self._targets.copies is None:
            raise Unsupported("this node copies nothing: [engines] copy is not set in its node.toml")
        return self._targets.copies

    # -- limits ----------------------------------------------------------------------------------

    def _limit(self, request: Request) -> None:
        """Change limits. Both are checked before the first one is changed."""
        asked = decode(only_frame(request), LimitCopies)
        self._copies()
        changes: list[tuple[CopySource | CopyTarget | None, int | None]] = [
            (self._targets.transport, asked.fetch_bytes_per_s_max),
            (self._served.source, asked.serve_bytes_per_s_max),
        ]
        for side, limit in changes:
            if limit is not None:
                _check_limit(side, limit)
        for side, limit in changes:
            if side is not None and limit is not None:
                side.set_bytes_per_s_max(limit)
        request.reply([encode(self._limits())])

    def _limits(self) -> CopyLimits:
        target, source = self._targets.transport, self._served.source
        return CopyLimits(
            fetch_bytes_per_s_max=None if target is None else target.bytes_per_s_max(),
            serve_bytes_per_s_max=None if source is None else source.bytes_per_s_max(),
        )


def _check_limit(side: CopySource | CopyTarget | None, limit: int) -> None:
    if not 0 <= limit <= BYTES_PER_S_MAX:
        raise CallerError(f"{limit} bytes per second is not a limit; pass 1 to {BYTES_PER_S_MAX}, or 0 for no limit")
    if side is None or side.bytes_per_s_max() is None:
        raise Unsupported("the copy transport of this node has no limit that can be changed while the node runs")


def _line(tablet: TabletId, copy: TabletCopy | RowsCopy) -> CopyLine:
    asked, progress, offer = copy.asked, copy.control.latest, copy.source.offer
    fetches = copy.phase is CopyPhase.FETCHING and progress.bytes_done < progress.bytes_total
    return CopyLine(
        tablet_id=tablet,
        table_id=asked.table_name,
        leader=asked.leader,
        source=None if offer is None else offer.source,
        rows_only=asked.rows_only,
        bytes_done=progress.bytes_done,
        bytes_total=progress.bytes_total,
        bytes_fetched=progress.bytes_fetched,
        eta_ms=progress.eta_ms if fetches and not copy.control.paused else None,
        phase=ReportedCopyPhase(copy.phase.value),
        paused=copy.control.paused,
    )


def _waiting_line(tablet: TabletId, one: WaitingCopy) -> CopyLine:
    return CopyLine(
        tablet_id=tablet,
        table_id=one.asked.table_name,
        leader=one.asked.leader,
        source=None,
        rows_only=one.asked.rows_only,
        bytes_done=0,
        bytes_total=0,
        bytes_fetched=0,
        eta_ms=None,
        waits=True,
        paused=one.paused,
    )
