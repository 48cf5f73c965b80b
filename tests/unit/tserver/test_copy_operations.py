"""What operators are told of the copies of a node, and what a node does with orders and limits that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.start_copy import StartCopy
from stelae.lifecycle.copy_holds import CopyHolds
from stelae.lifecycle.copy_states import CopyPhase
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
    CopyOrder,
    LimitCopies,
    OrderCopies,
    ReportedCopyPhase,
)
from stelae.server.tserver.copy_operations import CopyOperations
from stelae.spi.copy_plan import CopyProgress
from stelae.spi.errors import CallerError, Unsupported
from stelae.spi.ids import TabletId
from tests.unit.tserver.test_copy_target import ASKED, LEADER

U = TabletId("u")


class Side:
    """One side of a transport, with a limit or without one."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit

    def bytes_per_s_max(self) -> int | None:
        return self.limit

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        self.limit = bytes_per_s


class Server:
    """A node with copies that a test says."""

    def __init__(self, *, copies: bool = True) -> None:
        self.handlers: dict[str, Callable[[Any], None]] = {}
        self.holds = CopyHolds()
        self.copies: Any = SimpleNamespace(running={}, waiting={}, holds=self.holds, apply_holds=lambda: None)
        self.fetch, self.serve = Side(0), Side(0)
        node: Any = SimpleNamespace(
            messenger=SimpleNamespace(serve=self.handlers.__setitem__), turns=SimpleNamespace(now_us=lambda: 1_000)
        )
        targets: Any = SimpleNamespace(copies=self.copies if copies else None, transport=self.fetch)
        served: Any = SimpleNamespace(source=self.serve)
        CopyOperations(node, targets, served).start()

    def ask(self, kind: str, body: Any, answer: type[Any]) -> Any:
        answers: list[list[bytes]] = []
        self.handlers[kind](SimpleNamespace(body=[encode(body)], reply=answers.append))
        return decode(answers[0][0], answer)

    def limit(self, **limits: int) -> CopyLimits:
        found: CopyLimits = self.ask(LIMIT_COPIES, LimitCopies(**limits), CopyLimits)
        return found


def a_copy(
    asked: StartCopy,
    progress: CopyProgress,
    offer: object,
    *,
    paused: bool = False,
    phase: CopyPhase = CopyPhase.FETCHING,
) -> object:
    control = SimpleNamespace(latest=progress, paused=paused)
    return SimpleNamespace(asked=asked, control=control, source=SimpleNamespace(offer=offer), phase=phase)


def test_copies_are_listed_in_order_with_what_is_known_of_them() -> None:
    server = Server()
    assert server.ask(COPIES, CopiesRequest(), CopiesReply).copies == ()
    begun = CopyProgress(bytes_done=0, bytes_total=0, bytes_fetched=0, eta_ms=None)
    going = CopyProgress(bytes_done=30, bytes_total=90, bytes_fetched=20, eta_ms=1500)
    rows_only = msgspec.structs.replace(ASKED, rows_only=True)
    source = SimpleNamespace(source=LEADER)
    server.copies.running |= {
        "u": a_copy(rows_only, begun, None),
        "t": a_copy(ASKED, going, source),
        "v": a_copy(ASKED, going, source, paused=True),
    }
    server.copies.waiting["s"] = WaitingCopy(ASKED, paused=False, asked_us=0)
    server.copies.waiting["u"] = WaitingCopy(ASKED, paused=False, asked_us=0)
    server.holds.bar(U, 2_000, 0)
    server.limit(fetch_bytes_per_s_max=7)
    told = server.ask(COPIES, CopiesRequest(), CopiesReply)
    waits, first, second, third = told.copies
    assert (waits.tablet_id, waits.waits, waits.paused, waits.bytes_total) == ("s", True, False, 0)
    assert (first.tablet_id, first.table_id, first.leader, first.source) == ("t", "table", LEADER, LEADER)
    assert (first.bytes_done, first.bytes_total, first.bytes_fetched, first.eta_ms) == (30, 90, 20, 1500)
    assert (second.tablet_id, second.rows_only, second.source, second.eta_ms) == ("u", True, None, None)
    assert (third.paused, third.eta_ms) == (True, None), "nobody knows when a paused copy ends"
    assert told.limits == CopyLimits(fetch_bytes_per_s_max=7, serve_bytes_per_s_max=0)
    assert (told.paused, told.cancelled) == (False, (U,))
    server.holds.pause(None, 2_000, 0)
    assert server.ask(COPIES, CopiesRequest(), CopiesReply).paused


def test_a_copy_that_has_all_bytes_has_a_phase_and_no_known_end() -> None:
    """It was shown with 100 % and no time left while it was verified, which takes minutes for a large tablet."""
    server = Server()
    there = CopyProgress(bytes_done=90, bytes_total=90, bytes_fetched=90, eta_ms=0)
    source = SimpleNamespace(source=LEADER)
    phases = (CopyPhase.FETCHING, CopyPhase.VERIFYING, CopyPhase.INSTALLING)
    server.copies.running |= {f"t{n}": a_copy(ASKED, there, source, phase=phase) for n, phase in enumerate(phases)}
    server.copies.waiting["w"] = WaitingCopy(ASKED, paused=False, asked_us=0)
    told = server.ask(COPIES, CopiesRequest(), CopiesReply).copies
    assert [line.eta_ms for line in told] == [None] * 4
    assert [line.phase for line in told] == [*map(ReportedCopyPhase, phases), None]
    assert list(ReportedCopyPhase) == [ReportedCopyPhase(phase.value) for phase in CopyPhase]


def test_a_limit_that_is_not_named_stays_and_zero_removes_one() -> None:
    server = Server()
    assert server.limit(fetch_bytes_per_s_max=10) == CopyLimits(fetch_bytes_per_s_max=10, serve_bytes_per_s_max=0)
    assert server.limit(serve_bytes_per_s_max=20) == CopyLimits(fetch_bytes_per_s_max=10, serve_bytes_per_s_max=20)
    assert server.limit() == CopyLimits(fetch_bytes_per_s_max=10, serve_bytes_per_s_max=20)
    assert server.limit(fetch_bytes_per_s_max=0) == CopyLimits(fetch_bytes_per_s_max=0, serve_bytes_per_s_max=20)


@pytest.mark.parametrize("wrong", [-1, BYTES_PER_S_MAX + 1])
def test_a_limit_out_of_bounds_is_refused_and_changes_neither(wrong: int) -> None:
    server = Server()
    with pytest.raises(CallerError, match="is not a limit"):
        server.limit(fetch_bytes_per_s_max=5, serve_bytes_per_s_max=wrong)
    assert server.limit() == CopyLimits(fetch_bytes_per_s_max=0, serve_bytes_per_s_max=0)


def test_a_transport_without_a_limit_says_so_and_changes_neither() -> None:
    server = Server()
    server.serve.limit = None
    with pytest.raises(Unsupported, match="no limit that can be changed"):
        server.limit(fetch_bytes_per_s_max=5, serve_bytes_per_s_max=5)
    assert server.limit() == CopyLimits(fetch_bytes_per_s_max=0, serve_bytes_per_s_max=None)


WILD: dict[str, OrderCopies] = {
    "a path": OrderCopies(order=CopyOrder.PAUSE, tablet_id=TabletId("../t"), for_ms=HELD_MS_MIN),
    "too short": OrderCopies(order=CopyOrder.PAUSE, tablet_id=None, for_ms=HELD_MS_MIN - 1),
    "too long": OrderCopies(order=CopyOrder.CANCEL, tablet_id=None, for_ms=HELD_MS_MAX + 1),
    "a stranger paused": OrderCopies(order=CopyOrder.PAUSE, tablet_id=U, for_ms=HELD_MS_MIN),
    "a stranger cancelled": OrderCopies(order=CopyOrder.CANCEL, tablet_id=U, for_ms=HELD_MS_MIN),
}


@pytest.mark.parametrize("order", WILD.values(), ids=WILD)
def test_an_order_that_makes_no_sense_is_refused_and_holds_nothing(order: OrderCopies) -> None:
    server = Server()
    with pytest.raises(CallerError):
        server.ask(ORDER_COPIES, order, CopiesReply)
    assert server.holds.held(0) == [] and not server.holds.pauses_all(1_000)


def test_a_node_without_a_transport_lists_nothing_and_refuses_orders() -> None:
    server = Server(copies=False)
    assert server.ask(COPIES, CopiesRequest(), CopiesReply) == CopiesReply(copies=())
    with pytest.raises(Unsupported, match=r"\[engines\] copy is not set"):
        server.limit(fetch_bytes_per_s_max=5)
    with pytest.raises(Unsupported, match=r"\[engines\] copy is not set"):
        server.ask(ORDER_COPIES, OrderCopies(order=CopyOrder.RESUME, tablet_id=None), CopiesReply)
