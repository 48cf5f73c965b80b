"""Lookups of one tablet: what shares a request, which answers end it, and what is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.client import lookup_queue, lookup_requests
from stelae.client.found_parts import FoundPage, FoundPart, FoundValues
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.lookup_queue import LookupQueue
from stelae.protocol.codec import decode, encode
from stelae.protocol.lookup_messages import LookupReply, LookupRequest, pack_positions
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.arrow_page import encoded_rows
from stelae.spi.errors import NotLeader, PeerError, StelaeError, TooLarge, TooOld, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.wire.messenger import Response
from tests.unit.client.tablets import SCHEMA

NODES = [NodeId(name) for name in "abc"]


def answer(rows: list[Any], ids: tuple[int, ...] | None = None) -> Any:
    return SimpleNamespace(body=[encode(LookupReply(rows, ids))])


class Server:
    """Answers each request with the keys as rows, at most ``rows_max`` of them, or with the next problem."""

    def __init__(self) -> None:
        self.requests: list[LookupRequest] = []
        self.asked: list[NodeId] = []
        self.repeated: list[float] = []
        self.problems: list[Exception] = []
        self.rows_max = 1000
        self.refused = b""
        self.held: list[asyncio.Future[Response]] = []
        self.holding = False
        self.leader = LeaderTracker(NODES)
        self.deferred: list[Callable[[], None]] = []
        self.queue = LookupQueue(self, self.deferred.append, TabletId("t"), SCHEMA)

    def call(self, node: NodeId, kind: str, body: bytes) -> asyncio.Future[Response]:
        self.asked.append(node)
        if self.refused and self.refused in body:
            raise TooLarge("body frame", len(body), len(self.refused))
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if self.holding:
            self.held.append(future)
            return future
        try:
            future.set_result(self._answer(body))
        except Exception as error:
            future.set_exception(error)
        return future

    async def repeat(self, tracker: LeaderTracker, kind: str, body: bytes, deadline: float) -> Response:
        self.repeated.append(deadline)
        if self.holding:
            await asyncio.Event().wait()
        return self._answer(body)

    def _answer(self, body: bytes) -> Response:
        if self.problems:
            raise self.problems.pop(0)
        self.requests.append(decode(body, LookupRequest))
        found: Response = answer([[key] for key in self.requests[-1].keys[: self.rows_max]])
        return found

    def look_up(self, *keys: bytes, at: int | None = None, timeout_s: float = 5.0) -> asyncio.Future[list[FoundPart]]:
        return self.queue.add(keys, at, timeout_s, lambda: self.leader)

    def end_turn(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()


def on_server(work: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(work(Server()), 10)

    asyncio.run(run())


def rows_of(parts: list[FoundPart]) -> list[bytes]:
    values = [part for part in parts if isinstance(part, FoundValues)]
    assert len(values) == len(parts) and all(tuple(part.ids) == SCHEMA.layout.ids for part in values)
    return [row[0] for part in values for row in part.rows]


def test_the_lookups_of_one_turn_share_a_request_if_they_read_at_the_same_time() -> None:
    async def work(server: Server) -> None:
        latest = [server.look_up(b"a"), server.look_up(b"b", b"a"), server.look_up(b"c")]
        past = [server.look_up(b"a", at=7), server.look_up(b"d", at=7)]
        assert not server.requests
        server.end_turn()
        assert [rows_of(parts) for parts in await asyncio.gather(*latest, *past)] == [
            [b"a"],
            [b"b", b"a"],
            [b"c"],
            [b"a"],
            [b"d"],
        ]
        assert [(request.keys, request.at) for request in server.requests] == [
            ((b"a", b"b", b"a", b"c"), None),
            ((b"a", b"d"), 7),
        ]
        later = server.look_up(b"e")
        server.end_turn()
        assert rows_of(await later) == [b"e"] and len(server.requests) == 3

    on_server(work)


def test_calls_share_a_request_up_to_some_keys_and_one_call_has_a_request_of_its_own_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one request for all, client and server waited for each other."""
    monkeypatch.setattr(lookup_queue, "SHARED_KEYS_MAX", 3)

    async def work(server: Server) -> None:
        calls = [server.look_up(*([b"k"] * count)) for count in (1, 2, 3, 2, 2, 9, 1)]
        server.end_turn()
        assert [len(rows_of(parts)) for parts in await asyncio.gather(*calls)] == [1, 2, 3, 2, 2, 9, 1]
        assert [len(request.keys) for request in server.requests] == [3, 3, 2, 2, 9, 1]

    on_server(work)


def test_a_key_that_is_too_large_for_a_request_fails_its_own_lookup_only() -> None:
    """The lookups of all callers in that turn failed."""
    large = b"x" * (lookup_requests.LOOKUP_REQUEST_BYTES + 1)

    async def work(server: Server) -> None:
        server.refused = large
        calls = [server.look_up(b"a"), server.look_up(large), server.look_up(b"b"), server.look_up(b"c")]
        server.end_turn()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[1], TooLarge)
        assert [rows_of(parts) for parts in (found[0], *found[2:])] == [[b"a"], [b"b"], [b"c"]]  # type: ignore[arg-type]
        assert [request.keys for request in server.requests] == [(b"a",), (b"b", b"c")]

    on_server(work)


def test_keys_behind_the_end_of_an_answer_are_asked_for_again() -> None:
    async def work(server: Server) -> None:
        server.rows_max = 2
        calls = [server.look_up(b"a"), server.look_up(b"b", b"c", b"d"), server.look_up(b"e")]
        server.end_turn()
        assert [rows_of(parts) for parts in await asyncio.gather(*calls)] == [[b"a"], [b"b", b"c", b"d"], [b"e"]]
        assert [request.keys for request in server.requests][1:] == [(b"c", b"d", b"e"), (b"e",)]

    on_server(work)


@pytest.mark.parametrize(
    "problem", [NotLeader(NODES[1]), Unavailable("no"), NoSuchTablet("none here"), NotLeader(None, "replaced")]
)
def test_a_request_that_was_not_served_is_repeated_until_the_deadline_of_its_turn(problem: StelaeError) -> None:
    async def work(server: Server) -> None:
        server.problems = [problem]
        begun = asyncio.get_running_loop().time()
        calls = [server.look_up(b"a", timeout_s=3.0), server.look_up(b"b", timeout_s=3.0)]
        server.end_turn()
        assert [rows_of(parts) for parts in await asyncio.gather(*calls)] == [[b"a"], [b"b"]]
        assert len(server.repeated) == 1 and begun + 3 <= server.repeated[0] < begun + 4

    on_server(work)


def test_an_error_of_the_repetition_or_one_that_no_repetition_can_help_reaches_every_caller() -> None:
    async def work(server: Server) -> None:
        for problems in ([TooOld(9)], [Unavailable("first"), TooOld(9)]):
            server.problems = list(problems)
            calls = [server.look_up(b"a", at=3), server.look_up(b"b", at=3)]
            server.end_turn()
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(error) for error in found] == [TooOld, TooOld]
        assert len(server.repeated) == 1

    on_server(work)


def test_a_caller_that_was_cancelled_does_not_keep_the_others_from_their_rows() -> None:
    async def work(server: Server) -> None:
        gone, kept = server.look_up(b"a"), server.look_up(b"b")
        gone.cancel()
        server.end_turn()
        assert rows_of(await kept) == [b"b"]

    on_server(work)


ROW = RowBatch.from_equal_rows(SCHEMA.layout, [(1, 2, 3.5, "x")])
PAGE = bytes(encoded_rows(ROW))
PAGE_OF_2 = bytes(encoded_rows(RowBatch.from_equal_rows(SCHEMA.layout, [(1, 2, 3.5, "x"), (2, 2, 3.5, "x")])))


def paged(*positions: Sequence[int], frames: Sequence[bytes] = (PAGE,), **fields: Any) -> list[bytes]:
    return [encode(LookupReply([], pages=tuple(map(pack_positions, positions)), **fields)), *frames]


def test_the_keys_of_pages_are_those_after_the_keys_of_rows() -> None:
    async def work(server: Server) -> None:
        server.holding = True
        calls = [server.look_up(b"a", b"b"), server.look_up(b"c"), server.look_up(b"d", b"e", b"f")]
        server.end_turn()
        reply = LookupReply([None], pages=(pack_positions([0, -1, -1]), pack_positions([0])))
        server.held[0].set_result(SimpleNamespace(body=[encode(reply), PAGE, PAGE]))
        server.holding = False
        first, second, third = await asyncio.gather(*calls)
        assert first == [FoundValues(SCHEMA.layout.ids, [None]), FoundPage(first[1].rows, (0,))]
        assert [part.positions for part in second] == [(-1,)]
        assert [part.positions for part in third[:2]] == [(-1,), (0,)]
        assert [request.keys for request in server.requests] == [(b"f",)] and rows_of(third[2:]) == [b"f"]

    on_server(work)


@pytest.mark.parametrize(
    "body",
    [
        paged([0], frames=()),
        paged([0], [0]),
        paged(frames=(PAGE,)),
        paged([1]),
        paged([-1], frames=(PAGE_OF_2,)),
        paged([-2]),
        paged([]),
        paged([0], frames=(b"no page",)),
        paged([0], frames=(PAGE[:-9],)),
        paged([0], ids=SCHEMA.layout.ids),
        [encode(LookupReply([], pages=(b"abc",))), PAGE],
    ],
)
def test_pages_that_are_not_those_announced_are_an_error_of_the_peer(body: list[bytes]) -> None:
    async def work(server: Server) -> None:
        server.holding = True
        call = server.look_up(b"a")
        server.end_turn()
        server.held[0].set_result(SimpleNamespace(body=body))
        with pytest.raises(PeerError, match="cannot be read"):
            await call

    on_server(work)


@pytest.mark.parametrize("body", [[], [b"\xc1"], [encode(LookupReply([]))], [msgspec.msgpack.encode([7])]])
def test_an_answer_that_is_no_answer_is_an_error_of_the_peer(body: list[bytes]) -> None:
    async def work(server: Server) -> None:
        server.holding = True
        call = server.look_up(b"a")
        server.end_turn()
        malformed: Any = SimpleNamespace(body=body)
        server.held[0].set_result(malformed)
        with pytest.raises(PeerError):
            await call

    on_server(work)


def test_a_closed_client_ends_lookups_that_wait_are_in_flight_or_are_repeated() -> None:
    async def work(server: Server) -> None:
        server.problems = [Unavailable("no")]
        repeated = server.look_up(b"a")
        server.end_turn()
        server.holding = True
        await asyncio.sleep(0.01)
        in_flight = server.look_up(b"b")
        server.end_turn()
        waiting = server.look_up(b"c")
        server.queue.close(Unavailable("the client is closed"))
        server.held[0].set_exception(Unavailable("the messenger is closed"))
        server.end_turn()
        late = server.look_up(b"d")
        for call in (repeated, in_flight, waiting, late):
            with pytest.raises(Unavailable, match="the client is closed"):
                await call

    on_server(work)


def test_a_lookup_whose_repetition_has_not_begun_ends_when_the_client_is_closed() -> None:
    """The task of the repetition was cancelled before its first step, so its caller waited for ever."""

    async def work(server: Server) -> None:
        server.problems = [Unavailable("the node is down")]
        asked = server.look_up(b"a")
        server.end_turn()
        # This runs in the turn of the answer, behind the answer.
        asyncio.get_running_loop().call_soon(server.queue.close, Unavailable("the client is closed"))
        with pytest.raises(Unavailable, match="the client is closed"):
            await asked

    on_server(work)
