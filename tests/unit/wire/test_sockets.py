"""What the protocol relies on in the sockets themselves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest
import zmq

from stelae.spi.services import Buffer
from stelae.wire.settings import FRAMES_MAX
from stelae.wire.sockets import DRAINS_MAX, DealerSocket, RouterSocket, SocketLoop, SocketOwner
from tests.unit.wire.worlds import context as messenger_context

POLL_MS = 5000


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def wait(port: RouterSocket | DealerSocket, events: int, timeout_ms: int = POLL_MS) -> bool:
    return bool(port._socket.poll(timeout_ms, events))


def bound(router: RouterSocket) -> int:
    return int(router.bind("127.0.0.1", 0).removeprefix("127.0.0.1:"))


def pair(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[RouterSocket, DealerSocket, int]:
    router, dealer = RouterSocket(context, 1 << 20, 100), DealerSocket(context, 1 << 20, 100)
    port = bound(router)
    dealer.connect("127.0.0.1", port)
    assert wait(dealer, zmq.POLLOUT)
    return router, dealer, port


def received(port: RouterSocket | DealerSocket) -> list[list[Buffer]]:
    assert wait(port, zmq.POLLIN)
    came: list[list[Buffer]] = []
    assert port.drain(came.append, 1000)
    return came


def test_nothing_can_be_queued_before_a_connection_stands(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    # A port that is held and where nobody listens: one of a router that was closed may still accept for a moment.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        dealer = DealerSocket(context, 1 << 20, 100)
        dealer.connect("127.0.0.1", held.getsockname()[1])
        assert not dealer.events()[1]
        assert not dealer.send([b"x"])


def test_a_lost_connection_shows_at_once_and_is_never_made_again_behind_our_back(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    router, dealer, port = pair(context)
    router.close()
    while dealer.events()[1]:
        dealer._socket.poll(10, zmq.POLLIN)
    successor = RouterSocket(context, 1 << 20, 100)
    successor.bind("127.0.0.1", port)
    newcomer = DealerSocket(context, 1 << 20, 100)
    newcomer.connect("127.0.0.1", port)
    assert wait(newcomer, zmq.POLLOUT)
    assert not wait(dealer, zmq.POLLOUT, timeout_ms=300)
    assert not dealer.send([b"for the dead"])


def test_a_caller_that_is_gone_is_said_to_be_gone(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer, _ = pair(context)
    assert dealer.send([b"hello"])
    ((routing_id, _),) = received(router)
    dealer.close()
    while router.send([routing_id, b"x"]):
        router._socket.poll(10, zmq.POLLIN)
    assert not router.send([routing_id, b"x"])
    assert not router.send([b"never seen", b"x"])


def test_a_reader_that_does_not_read_is_said_to_be_full(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer, _ = pair(context)
    results = {dealer.send([bytes(1 << 19)]) for _ in range(2000)}
    assert results == {True, False}
    assert router.events()[0]


def test_a_drain_stops_at_its_limit_and_says_that_more_is_left(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer, _ = pair(context)
    for _ in range(10):
        dealer.send([b"x"])
    came: list[list[Buffer]] = []
    while len(came) < 10:
        assert wait(router, zmq.POLLIN)
        before = len(came)
        router.drain(came.append, 1)
        assert len(came) == before + 1
    assert router.drain(came.append, 1)


def test_of_a_message_with_endless_frames_only_so_many_are_kept(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer, _ = pair(context)
    dealer.send([b"x"] * (3 * FRAMES_MAX))
    dealer.send([b"next"])
    many, *rest = received(router)
    assert FRAMES_MAX < len(many) < FRAMES_MAX + 10
    following = rest or received(router)
    assert [bytes(frame) for frame in following[0][1:]] == [b"next"]


def test_a_frame_above_the_hard_limit_ends_the_connection_before_it_is_held(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    router, dealer, _ = pair(context)
    dealer.send([bytes(3 << 20)])
    while dealer.events()[1]:
        dealer._socket.poll(10, zmq.POLLIN)
    assert not router.events()[0]


def test_large_frames_are_views_and_small_ones_bytes(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer, _ = pair(context)
    dealer.send([b"header", b"packed", bytes(100_000)])
    ((_, header, packed, large),) = received(router)
    assert isinstance(header, bytes)
    assert isinstance(packed, bytes)
    assert isinstance(large, memoryview)
    assert large.nbytes == 100_000


class Owner(SocketOwner):
    """An owner whose socket has changed behind the loop's back until ``on_ready``."""

    changed = True

    def on_packet(self, frames: list[Buffer]) -> None:
        raise AssertionError(frames)

    def flush(self) -> None:
        pass

    def on_due(self, now_us: int) -> None:
        pass

    def is_ready(self) -> bool:
        return self.changed

    def on_ready(self) -> None:
        self.changed = False


@pytest.mark.parametrize("call", [SocketLoop._flush, SocketLoop._on_timer], ids=["flush", "timer"])
def test_what_comes_while_the_loop_itself_calls_a_socket_is_handled(call: Callable[[SocketLoop], None]) -> None:
    """A timer drained a link that connected: the link never learned that the connection had come, and gave it up."""

    async def main() -> None:
        sockets = SocketLoop(messenger_context(1), asyncio.get_running_loop().call_soon)
        owner = Owner(messenger_context(1), sockets)
        sockets.flush_later(owner)
        call(sockets)
        await asyncio.sleep(0)
        assert not owner.changed
        sockets.close()

    asyncio.run(main())


class FloodedOwner(Owner):
    """An owner whose peers send faster than it can read. It has a deadline."""

    left = True
    judged = 0

    def drain(self) -> bool:
        return not self.left

    def is_ready(self) -> bool:
        return False

    def on_due(self, now_us: int) -> None:
        self.judged += 1


class HandLoop:
    """An event loop that runs what it was given when the test says so."""

    def __init__(self) -> None:
        self.soon: list[asyncio.Handle] = []
        self.timers: list[asyncio.Handle] = []

    def call_soon(self, call: Callable[[], object]) -> asyncio.Handle:
        self.soon.append(asyncio.Handle(call, (), asyncio.get_running_loop()))
        return self.soon[-1]

    def call_later(self, delay_s: float, call: Callable[[], object]) -> asyncio.Handle:
        self.timers.append(asyncio.Handle(call, (), asyncio.get_running_loop()))
        return self.timers[-1]

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for handle in due:
            if not handle.cancelled():
                handle._run()

    def waiting(self) -> int:
        return sum(not handle.cancelled() for handle in (*self.soon, *self.timers))


def flooded() -> tuple[SocketLoop, FloodedOwner, HandLoop]:
    """A socket loop whose timer has just fired for the deadline of an owner that has packets left."""
    context = messenger_context(1)
    sockets = SocketLoop(context, asyncio.get_running_loop().call_soon)
    loop = HandLoop()
    sockets.loop = loop  # type: ignore[assignment]
    owner = FloodedOwner(context, sockets)
    sockets.deadlines.set(owner, context.now_us() + 10_000)
    context.clock.now_us += 20_000  # type: ignore[attr-defined]
    loop.timers.pop()._run()
    return sockets, owner, loop


def test_a_flood_of_packets_delays_timeouts_and_does_not_end_them() -> None:
    """While more clients sent than a turn can read, a node neither gave up a request nor reconnected to a peer."""

    async def main() -> None:
        sockets, owner, loop = flooded()
        for _ in range(DRAINS_MAX):
            assert not owner.judged, "its packets are read first"
            loop.turn()
        assert owner.judged == 1
        sockets.close()

    asyncio.run(main())


def test_a_flood_of_packets_leaves_one_timer() -> None:
    """Each turn of a flood left one more timer, which was set again whenever it fired, for as long as the node ran."""

    async def main() -> None:
        sockets, owner, loop = flooded()
        other = FloodedOwner(sockets._context, sockets)
        for _ in range(5):
            sockets.deadlines.set(other, sockets._context.now_us() + 30_000)
            assert loop.waiting() == 1
            loop.turn()
        owner.left = other.left = False
        loop.turn()
        assert owner.judged == 1 and not other.judged and loop.waiting() == 1
        sockets.close()

    asyncio.run(main())


def test_requests_that_are_read_during_a_flood_leave_one_timer() -> None:
    """A request that was read before the timeouts are judged set a timer, and the next drain set another beside it.

    Each of them was set again whenever it fired, so a node that was flooded now and then had more and more of them."""

    async def main() -> None:
        sockets, owner, loop = flooded()
        other = FloodedOwner(sockets._context, sockets)

        def drain_requests() -> bool:
            sockets.deadlines.set(other, sockets._context.now_us() + 30_000)
            return not owner.left

        owner.drain = drain_requests  # type: ignore[method-assign]
        for _ in range(5):
            loop.turn()
            assert loop.waiting() == 1
        owner.left = other.left = False
        loop.turn()
        assert owner.judged == 1 and not other.judged and loop.waiting() == 1
        sockets.close()

    asyncio.run(main())
