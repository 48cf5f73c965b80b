"""The heartbeats that a tablet server sends: how often a full report, and what goes out if one does not fit."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState
from stelae.server.tserver import heartbeats, master_list
from stelae.server.tserver.heartbeats import FULL_REPORT_MS, INTERVAL_US, LOOK_US, HeartbeatSender
from stelae.server.tserver.settings import TabletServerSettings
from stelae.spi.errors import DeadlineExceeded, TooLarge
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from stelae.spi.members import Member

LEADER, OTHER = (NodeId(letter * 32) for letter in "ab")


class Call:
    """A heartbeat that was sent, until a test answers it."""

    def __init__(self, to: NodeId, heartbeat: Heartbeat, deadline_ms: int) -> None:
        self.to, self.heartbeat, self.deadline_ms = to, heartbeat, deadline_ms
        self.done: Any = None

    @property
    def full(self) -> bool:
        return self.heartbeat.report is not None and self.heartbeat.report.full

    def add_done_callback(self, done: Any) -> None:
        self.done = done

    def answer(self, term: int = 1, *, wants_full: bool = False, acknowledged: int = 0) -> None:
        reply = HeartbeatReply(term=term, leader=LEADER, wants_full=wants_full, acknowledged=acknowledged)
        answered: asyncio.Future[Any] = asyncio.Future(loop=MagicMock())
        answered.set_result(SimpleNamespace(body=[encode(reply)]))
        self.done(answered)

    def fail(self) -> None:
        failed: asyncio.Future[Any] = asyncio.Future(loop=MagicMock())
        failed.set_exception(DeadlineExceeded("no answer"))
        self.done(failed)


class Server:
    """The heartbeats of a node with one replica, and two masters that answer when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, body_bytes_max: int = 1 << 20) -> None:
        self.now_us, self.sent, self._body_bytes_max = 0, list[Call](), body_bytes_max
        self.turns = MagicMock()
        self.turns.now_us.side_effect = lambda: self.now_us
        messenger = MagicMock(identity=SimpleNamespace(incarnation_id=IncarnationId("1" * 16)), peers=frozenset())
        messenger.call.side_effect = self._call
        self.node = MagicMock(
            node_id=NodeId("f" * 32), address="host:1", turns=self.turns, messenger=messenger, replicas={}
        )
        self.node.free_bytes.return_value = 1
        members = tuple(Member(node_id=node, address=f"{node[0]}:1") for node in (LEADER, OTHER))
        self.node.config = SimpleNamespace(extra={"tserver": TabletServerSettings()}, masters=members)
        monkeypatch.setattr(master_list, "load_masters", lambda files, layout: None)
        status = ReplicaStatus(tablet_id=TabletId("t" * 200), data_state=ReportedDataState.READY)
        changes = MagicMock()
        changes.return_value.take.side_effect = [[status], *([[]] * 100_000)]
        monkeypatch.setattr(heartbeats, "ReplicaChanges", changes)
        monkeypatch.setattr(heartbeats, "NodeInfoService", MagicMock())
        load = MagicMock()
        load.per_s.return_value = 0.0
        HeartbeatSender(self.node, load, MagicMock()).start()

    def _call(self, to: NodeId, kind: str, frames: list[bytes], *, deadline_ms: int) -> Call:
        if len(frames[0]) > self._body_bytes_max:
            raise TooLarge("body frame", len(frames[0]), self._body_bytes_max)
        self.sent.append(Call(to, decode(frames[0], Heartbeat), deadline_ms))
        return self.sent[-1]

    def pass_us(self, us: int) -> list[Call]:
        """Let time pass, and return the heartbeats to the leader that were sent."""
        self.sent.clear()
        for _ in range(us // LOOK_US):
            self.now_us += LOOK_US
            looks = [call.args[1] for call in self.turns.call_at.call_args_list if call.args[0] == self.now_us]
            looks[-1]()
        return [call for call in self.sent if call.to == LEADER]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that has just learned that a master leads."""
    made = Server(monkeypatch)
    made.pass_us(INTERVAL_US)[0].answer()
    return made


def test_a_leader_gets_no_second_full_report_while_the_first_is_on_its_way(server: Server) -> None:
    """A master that heard many servers at once took longer to answer than heartbeats are apart. Each server sent all
    of its replicas with every heartbeat, and the master fell further behind with each."""
    first, *later = server.pass_us(10 * INTERVAL_US)
    assert first.full and len(later) >= 8, "it goes on to show that it lives"
    assert [call.heartbeat.report for call in later] == [None] * len(later)
    first.answer(acknowledged=1)
    assert not any(call.full for call in server.pass_us(4 * INTERVAL_US))


def test_a_late_answer_to_a_full_report_still_counts(server: Server) -> None:
    """It was given up after two seconds, and the next full report found the master as busy as before."""
    (first, *_) = server.pass_us(INTERVAL_US)
    assert first.full and first.deadline_ms == FULL_REPORT_MS > 20_000


def test_a_full_report_that_was_lost_is_sent_again(server: Server) -> None:
    (first, *_) = server.pass_us(INTERVAL_US)
    first.fail()
    (again, *_) = server.pass_us(INTERVAL_US)
    assert first.full and again.full


def test_a_leader_that_asks_again_gets_a_full_report_at_once(server: Server) -> None:
    (first, *_) = server.pass_us(INTERVAL_US)
    first.answer(wants_full=True)
    (again,) = server.pass_us(LOOK_US)
    assert again.full


def test_a_server_whose_report_fits_no_message_still_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error ended the round: neither this master nor those after it heard the server, and took it for dead."""
    server = Server(monkeypatch, body_bytes_max=250)
    server.pass_us(INTERVAL_US)[0].answer()
    with caplog.at_level(logging.WARNING):
        told = server.pass_us(4 * INTERVAL_US)
    assert len(told) >= 3 and {call.to for call in server.sent} == {LEADER, OTHER}
    assert [call.heartbeat.report for call in told] == [None] * len(told)
    (line,) = caplog.messages
    assert "report does not fit one message master=a:1: " in line and "body frame" in line
    for call in told:
        call.answer(wants_full=True)
    assert len(server.pass_us(2 * INTERVAL_US)) <= 3, "it is not tried again with each look"


@pytest.mark.parametrize(("replicas", "pause_us"), [(3, LOOK_US), (1000, 100_000), (100_000, INTERVAL_US)])
def test_a_server_with_many_replicas_checks_them_less_often(server: Server, replicas: int, pause_us: int) -> None:
    server.node.replicas = dict.fromkeys(range(replicas))
    server.pass_us(LOOK_US)
    assert server.turns.call_at.call_args.args[0] == server.now_us + pause_us
