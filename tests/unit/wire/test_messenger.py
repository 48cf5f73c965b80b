"""Messengers on loopback: links, lanes, successors, faults, credit."""

from __future__ import annotations

import asyncio
import random

import pytest

from stelae.local.chaos.network_rules import FaultRule, Faults
from stelae.spi.errors import (
    CallerError,
    ConfigError,
    DeadlineExceeded,
    NotLeader,
    Overloaded,
    PluginError,
    StelaeError,
    TooLarge,
    Unavailable,
)
from stelae.spi.ids import NodeId
from stelae.wire.call_retries import RetryPolicy
from stelae.wire.faults import Direction
from stelae.wire.messenger import Messenger, PeerChange
from stelae.wire.refusals import StaleSender, UnknownKind, WrongCluster
from stelae.wire.requests import Request
from stelae.wire.settings import Lane
from tests.unit.wire.worlds import joined, messenger, run, until

NODE = NodeId(f"{2:032x}")


def echo(node: Messenger) -> str:
    node.serve("echo", lambda request: request.reply(request.body, request.fields))
    node.serve("echo.bulk", lambda request: request.reply(request.body), lane=Lane.BULK)
    return node.bind("127.0.0.1:0")


def test_who_knows_an_address_only_learns_the_node_by_hello() -> None:
    async def main() -> None:
        client, _ = messenger(1, cluster="")
        node, _ = messenger(2)
        node_id = await client.connect(echo(node))
        assert node_id == NODE
        assert client.identity.cluster_id == "demo"
        answer = await client.call(node_id, "echo", [b"a", b""], deadline_ms=5000, fields={"n": 1})
        assert (answer.sender, answer.body, answer.fields) == (NODE, [b"a", b""], {"n": 1})

    run(main)


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 65535, 65536, 5 << 20])
def test_frames_of_every_size_arrive_as_they_were_on_both_lanes(size: int) -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        await joined(client, node, echo(node))
        frames = [random.Random(size).randbytes(size), b"tail", memoryview(bytes(size))]
        for kind, lane in (("echo", Lane.CONTROL), ("echo.bulk", Lane.BULK)):
            answer = await client.call(NODE, kind, frames, deadline_ms=10_000, lane=lane)
            assert [bytes(frame) for frame in answer.body] == [bytes(frame) for frame in frames]

    run(main)


def test_one_way_messages_arrive_in_order_and_a_turns_worth_is_one_message() -> None:
    async def main() -> None:
        first, _ = messenger(1)
        node, _ = messenger(2)
        came: list[bytes] = []
        node.on_message("note", lambda message: came.append(bytes(message.body[0])))
        await joined(first, node, node.bind("127.0.0.1:0"))
        link = first._link(NODE, Lane.CONTROL)
        assert link is not None
        written: list[int] = []
        connection = link.socket
        assert connection is not None
        send = connection.send
        connection.send = lambda frames: (written.append(1), send(frames))[1]  # type: ignore[method-assign]
        for number in range(500):
            assert first.send(NODE, "note", [b"%d" % number])
        await until(lambda: len(came) == 500)
        assert came == [b"%d" % number for number in range(500)]
        assert len(written) == 1

    run(main)


def test_errors_reach_the_caller_as_their_class() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, metrics = messenger(2)
        node.serve("write", lambda request: request.refuse(NotLeader("c" * 32)))
        await joined(client, node, echo(node))
        with pytest.raises(NotLeader) as caught:
            await client.call(NODE, "write", deadline_ms=5000)
        assert caught.value.leader == "c" * 32
        with pytest.raises(UnknownKind):
            await client.call(NODE, "nothing", deadline_ms=5000)
        assert metrics["wire_refused_unknown_kind"] == 1

    run(main)


def test_a_cancelled_call_is_cancelled_at_the_service() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        served: list[Request] = []
        node.serve("slow", served.append)
        await joined(client, node, node.bind("127.0.0.1:0"))
        call = client.call(NODE, "slow", deadline_ms=60_000)
        await until(lambda: bool(served))
        assert served[0].open
        call.cancel()
        await until(lambda: not served[0].open)
        with pytest.raises(DeadlineExceeded):
            await client.call(NODE, "slow", deadline_ms=30)

    run(main)


def test_nothing_meant_for_a_dead_process_reaches_its_successor() -> None:
    async def main() -> None:
        client, metrics = messenger(1)
        node, _ = messenger(2)
        address = echo(node)
        changes: list[PeerChange] = []
        client.on_peer_change(changes.append)
        await joined(client, node, address)
        node.close()
        await until(lambda: client.connected(NODE) is None)
        for _ in range(100):
            assert not client.send(NODE, "note", [b"for the dead"])
        with pytest.raises(Unavailable):
            await client.call(NODE, "echo", deadline_ms=5000)
        waiting = client.call(NODE, "echo", [b"x"], deadline_ms=20_000, retry=RetryPolicy())
        successor, counted = messenger(2, run=9)
        came: list[object] = []
        successor.on_message("note", came.append)
        successor.serve("echo", lambda request: request.reply(request.body))
        successor.bind(address)
        assert (await waiting).body == [b"x"]
        assert came == []
        assert counted["wire_refused_total"] == 0
        assert metrics["wire_messages_unsent"] == 100
        runs = [(change.incarnation, change.up) for change in changes if change.lane == 0]
        assert runs == [(f"{1:016x}", True), (f"{1:016x}", False), (f"{9:016x}", True)]

    run(main)


def test_a_run_that_a_later_one_has_superseded_is_told_so_by_the_peer_and_who_has_to_stop() -> None:
    """A copy of a node's folder ran for seconds; the original was refused for ever, and went on as if all was well."""

    async def main() -> None:
        peer, _ = messenger(2)
        address = echo(peer)
        original, _ = messenger(1)
        told: list[StelaeError] = []
        original.on_superseded = told.append
        await joined(original, peer, address)
        assert (await original.call(NODE, "echo", [b"x"], deadline_ms=5000)).body == [b"x"]
        assert told == []
        copy, _ = messenger(1, run=9)
        copied: list[StelaeError] = []
        copy.on_superseded = copied.append
        await joined(copy, peer, address)
        copy.close()
        await until(lambda: told != [])
        assert isinstance(told[0], StaleSender) and copied == []
        assert "another process has used the node uuid" in str(told[0])
        assert "stop the other process, then start this one again" in str(told[0])

    run(main)


def test_another_node_at_a_peers_address_is_not_taken_for_it() -> None:
    async def main() -> None:
        client, metrics = messenger(1)
        node, _ = messenger(2)
        client.add_peer(NodeId(f"{3:032x}"), echo(node))
        await until(lambda: metrics["wire_refused_wrong_recipient"] >= 2)
        assert client.connected(NodeId(f"{3:032x}")) is None

    run(main)


def test_another_cluster_is_told_apart_at_hello() -> None:
    async def main() -> None:
        client, _ = messenger(1, cluster="another")
        node, metrics = messenger(2)
        with pytest.raises(WrongCluster, match="another"):
            await client.connect(echo(node))
        assert metrics["wire_refused_wrong_cluster"] == 1

    run(main)


def test_a_search_for_nobody_ends_at_its_deadline() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        placeholder, _ = messenger(2)
        address = placeholder.bind("127.0.0.1:0")
        placeholder.close()
        with pytest.raises(Unavailable, match="no answer from"):
            await client.connect(address, deadline_ms=50)

    run(main)


def test_an_unresolvable_name_neither_crashes_nor_stalls_and_a_new_address_is_taken() -> None:
    async def main() -> None:
        client, metrics = messenger(1, connect_timeout_ms=300)
        node, _ = messenger(2)
        other, _ = messenger(3)
        client.add_peer(NODE, "no-such-host.invalid:7051")
        await joined(client, other, echo(other))
        assert (await client.call(other.identity.node_id, "echo", deadline_ms=5000)).body == []
        await until(lambda: metrics["wire_links_failed"] >= 1)
        client.add_peer(NODE, echo(node))
        await until(lambda: client.connected(NODE) is not None)

    run(main)


def test_a_partition_silences_a_link_and_healing_brings_it_back() -> None:
    async def main() -> None:
        faults = Faults(random.Random(1))
        client, _ = messenger(1, faults=faults, ping_ms=20, silence_ms_max=60, connect_timeout_ms=60)
        node, _ = messenger(2)
        await joined(client, node, echo(node))
        call = client.call(NODE, "echo", [b"x"], deadline_ms=20_000, retry=RetryPolicy())
        faults.partition(NODE, outbound=False)
        await until(lambda: client.connected(NODE) is None)
        assert not call.done()
        faults.heal(NODE)
        assert (await call).body == [b"x"]
        faults.partition(NODE, inbound=False)
        await until(lambda: client.connected(NODE) is None)
        faults.rules.clear()
        await until(lambda: client.connected(NODE) is not None)

    run(main)


def test_loss_repetition_and_reordering_cost_time_but_no_answer() -> None:
    async def main() -> None:
        faults = Faults(random.Random(5))
        rule = FaultRule(drop=0.2, duplicate=0.2, reorder=0.2, reorder_ms=5, delay_ms_max=3)
        client, metrics = messenger(1, faults=faults)
        node, _ = messenger(2)
        await joined(client, node, echo(node))
        for direction in Direction:
            faults.rules[(NODE, direction)] = rule
        retry = RetryPolicy(attempt_ms=30, backoff_ms_min=1, backoff_ms_max=5)
        for number in range(60):
            calls = [
                client.call(NODE, "echo", [b"%d.%d" % (number, n)], deadline_ms=20_000, retry=retry) for n in range(5)
            ]
            answers = [bytes((await call).body[0]) for call in calls]
            assert answers == [b"%d.%d" % (number, n) for n in range(5)]
        assert metrics["wire_faults_dropped"] > 10
        assert metrics["wire_answers_unawaited"] > 0

    run(main)


def test_a_peer_that_does_not_read_bounds_what_is_queued_for_it() -> None:
    async def main() -> None:
        client, _ = messenger(1, control_window_bytes=1 << 20)
        node, _ = messenger(2, control_window_bytes=1 << 20)
        node.on_message("note", lambda message: None)
        await joined(client, node, node.bind("127.0.0.1:0"))
        # No turn of the loop happens here, so the other side has no chance to read.
        taken = 0
        while client.send(NODE, "note", [bytes(10_000)]):
            taken += 1
        assert 90 <= taken <= 140
        with pytest.raises(Overloaded):
            await client.call(NODE, "note", [bytes(10_000)], deadline_ms=100)
        await until(lambda: client.send(NODE, "note", [bytes(10_000)]))

    run(main)


def test_a_sender_with_a_small_window_does_not_stand_still_before_a_receiver_with_a_large_one() -> None:
    """Regression story: the receiver reported by its own window, which was never used up."""

    async def main() -> None:
        client, _ = messenger(1, control_window_bytes=1 << 16, ping_ms=60_000)
        node, _ = messenger(2)
        came: list[object] = []
        node.on_message("note", came.append)
        await joined(client, node, node.bind("127.0.0.1:0"))
        for number in range(100):
            await until(lambda: client.send(NODE, "note", [bytes(10_000)]))
            await until(lambda number=number: len(came) > number)

    run(main)


def test_a_reader_that_stops_at_its_limit_comes_again_without_another_signal() -> None:
    async def main() -> None:
        first, _ = messenger(1, packet_messages_max=1)
        node, _ = messenger(2, packets_per_turn_max=1)
        came: list[object] = []
        node.on_message("note", came.append)
        await joined(first, node, node.bind("127.0.0.1:0"))
        for _ in range(5):
            expected = len(came) + 200
            for _ in range(200):
                assert first.send(NODE, "note", [b"x"])
            await until(lambda expected=expected: len(came) == expected)

    run(main)


def test_a_paused_process_finds_its_answers_before_its_timeouts() -> None:
    """Regression story: judging deadlines first turned every pause into a wave of time-outs."""

    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        held = []
        node.serve("held", held.append)
        await joined(client, node, node.bind("127.0.0.1:0"))
        call = client.call(NODE, "held", deadline_ms=600)
        await until(lambda: len(held) == 1)
        loop = asyncio.get_running_loop()
        held[0].reply([b"in time"])
        node._listener.flush()  # type: ignore[union-attr]
        loop.remove_reader(client._link(NODE, Lane.CONTROL).socket.fd)  # type: ignore[union-attr]
        await until(call.done)
        assert (await call).body == [b"in time"]

    run(main)


def test_where_a_node_may_listen() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        with pytest.raises(ConfigError, match="insecure_listen"):
            node.bind("0.0.0.0:0")
        address = node.bind("localhost:0")
        with pytest.raises(CallerError, match="already listens"):
            node.bind("127.0.0.1:0")
        other, _ = messenger(2)
        with pytest.raises(ConfigError, match="cannot listen on"):
            other.bind(address)
        open_to_all, _ = messenger(3, insecure_listen=True)
        assert open_to_all.bind("0.0.0.0:0").startswith("0.0.0.0:")
        for one in (node, other, open_to_all):
            one.close()
            one.close()

    run(main)


def test_misuse_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        node.serve("echo", lambda request: None)
        for kind in ("echo", "hello", "wire.ping", "", "k" * 65):
            with pytest.raises(PluginError):
                node.on_message(kind, lambda message: None)
        with pytest.raises(CallerError, match="own peer"):
            node.add_peer(node.identity.node_id, "127.0.0.1:1")
        with pytest.raises(ConfigError):
            node.add_peer(NODE, "nowhere")
        with pytest.raises(CallerError, match="deadline_ms"):
            node.call(NODE, "echo", deadline_ms=0)
        with pytest.raises(TooLarge):
            node.send(NODE, "echo", [bytes((65 << 20) + 1)])
        with pytest.raises(TooLarge):
            node.send(NODE, "echo", [b""] * 1100)
        with pytest.raises(Unavailable, match="not a peer"):
            await node.call(NODE, "echo", deadline_ms=10)
        assert not node.send(NODE, "echo")

    run(main)


def test_removing_a_peer_and_closing_fail_what_is_under_way() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        changes: list[PeerChange] = []
        node.serve("slow", lambda request: None)
        client.on_peer_change(changes.append)
        await joined(client, node, node.bind("127.0.0.1:0"))
        call = client.call(NODE, "slow", deadline_ms=60_000)
        client.remove_peer(NODE)
        with pytest.raises(Unavailable, match="no longer a peer"):
            await call
        assert [change.up for change in changes] == [True, True, False, False]
        search = client.connect("127.0.0.1:1")
        client.close()
        with pytest.raises(Unavailable, match="closing"):
            await search

    run(main)


def test_a_watcher_that_raises_stops_neither_the_link_nor_other_watchers() -> None:
    async def main() -> None:
        client, metrics = messenger(1)
        node, _ = messenger(2)
        changes: list[PeerChange] = []
        client.on_peer_change(lambda change: {}[change])
        client.on_peer_change(changes.append)
        await joined(client, node, echo(node))
        waiting = client.call(NODE, "echo", deadline_ms=10_000)
        node.close()
        with pytest.raises(Unavailable):
            await waiting
        await until(lambda: len(changes) == 4)
        assert [change.up for change in changes] == [True, True, False, False]
        assert metrics["wire_handlers_failed"] == 4

    run(main)


def test_a_late_answer_that_no_peer_takes_is_refused_instead_of_raising_where_it_was_made() -> None:
    """It raised in the turn that had made the answer, far from the handler: a scan of one huge row ended the node."""

    async def main() -> None:
        client, _ = messenger(1)
        node, metrics = messenger(2)
        loop, raised = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, told: raised.append(told))
        huge = bytes((65 << 20) + 1)
        node.serve("late", lambda request: loop.call_soon(request.reply, [huge]) and None)
        node.serve("many", lambda request: loop.call_soon(request.reply, [b""] * 2000) and None)
        await joined(client, node, node.bind("127.0.0.1:0"))
        for kind in ("late", "many"):
            with pytest.raises(TooLarge):
                await client.call(NODE, kind, deadline_ms=5000)
        assert not raised
        assert metrics["wire_refused_too_large"] == 2

    run(main)


def test_a_handler_that_raises_again_and_again_is_logged_once_and_counted_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, metrics = messenger(2)
        node.serve("buggy", lambda request: {}[request.kind])
        node.on_message("note", lambda message: {}[message.kind])
        await joined(client, node, echo(node))
        for _ in range(20):
            client.send(NODE, "note")
            with pytest.raises(StelaeError, match="unexpected"):
                await client.call(NODE, "buggy", deadline_ms=5000)
        await until(lambda: metrics["wire_handlers_failed"] == 40)
        assert (await client.call(NODE, "echo", [b"x"], deadline_ms=5000)).body == [b"x"]

    run(main)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2 and all("wire_handlers_failed" in line for line in told), told


def test_a_link_whose_frames_are_above_the_limit_of_the_peer_goes_on_to_carry_others() -> None:
    """One frame, as of a node whose limit was raised first, used up the credit of the link until the node restarted."""

    async def main() -> None:
        client, _ = messenger(1, control_window_bytes=64 << 10)
        node, metrics = messenger(2, control_window_bytes=64 << 10, frame_bytes_max=64 << 10)
        await joined(client, node, echo(node))
        assert client.send(NODE, "echo", [bytes(100_000)])
        await until(lambda: metrics["wire_refused_too_large"] == 1)
        answer = await client.call(NODE, "echo", [b"x"], deadline_ms=20_000, retry=RetryPolicy())
        assert answer.body == [b"x"]

    run(main)
