"""How a tablet server follows its masters: what it tells them, what it stores, and where it looks for lost ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.lifecycle.masters_file import StoredMasters
from stelae.protocol.codec import encode
from stelae.protocol.master_heartbeats import HeartbeatReply
from stelae.protocol.masters_messages import MASTERS, MastersView
from stelae.protocol.recovery_messages import FOLLOW_MASTERS, FollowMastersRequest
from stelae.server.tserver import master_list
from stelae.server.tserver.known_masters import LOST_US
from stelae.server.tserver.master_list import ASK_US, MasterList
from stelae.spi.errors import RecoveryNotYet, RecoveryRefused, StorageError, Unavailable
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

A, B, C, D, E = (NodeId(letter * 32) for letter in "abcde")
ONE, TWO = 1_700_000_000_000_000, 1_700_000_000_000_001  # When two clusters of one id were put on record.


def config(index: int, *nodes: NodeId) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, index), members=tuple(Member(node_id=n, address=f"{n[0]}:1") for n in nodes))


def stored(index: int, *nodes: NodeId, cluster_created_us: int = ONE) -> StoredMasters:
    return StoredMasters(cluster_created_us, config(index, *nodes))


class Server:
    """A list of masters on a node whose disk does what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk: list[StoredMasters] = []
        self.handlers: dict[str, Any] = {}
        self.pending: list[tuple[Callable[[], None], Callable[[object], None]]] = []
        monkeypatch.setattr(master_list, "load_masters", lambda files, layout: self.disk[-1] if self.disk else None)
        monkeypatch.setattr(master_list, "save_masters", lambda files, layout, stored: self.disk.append(stored))
        self.told: list[StoredMasters | None] = []
        self.now_us, self.links = 0, {C, D}
        self.asked: list[tuple[NodeId, Any]] = []
        messenger = SimpleNamespace(
            serve=self._serve,
            add_peer=lambda node, address: self.links.add(node),
            remove_peer=self.links.remove,
            peers=self.links,
            call=self._call,
        )
        pool = SimpleNamespace(run=lambda key, work, done: self.pending.append((work, done)))
        listed = SimpleNamespace(masters=config(0, A).members)
        node: Any = SimpleNamespace(
            config=listed,
            files=None,
            layout=None,
            messenger=messenger,
            metadata_pool=pool,
            node_id=NodeId("f" * 32),
            turns=SimpleNamespace(now_us=lambda: self.now_us),
        )
        self.list = MasterList(node, lambda: self.told.append(self.list.told))
        self.list.start()

    def _serve(self, kind: str, handler: Any) -> None:
        self.handlers[kind] = handler

    def hand(self, masters: TabletConfig, cluster_created_us: int = TWO, instead_of_us: int = ONE) -> list[Any]:
        """Ask the server to follow other masters. Returns the answers, which come once they are stored."""
        answers: list[Any] = []
        body = [encode(FollowMastersRequest(cluster_created_us, masters, instead_of_us))]
        request = SimpleNamespace(body=body, reply=lambda: answers.append(None), refuse=answers.append)
        self.handlers[FOLLOW_MASTERS](request)
        return answers

    def _call(self, to: NodeId, kind: str, frames: list[bytes], *, deadline_ms: int) -> Any:
        assert kind == MASTERS
        self.asked.append((to, answer := Future()))
        return answer

    def hear(self, masters: TabletConfig | None, master: NodeId = A, cluster_created_us: int = ONE) -> None:
        self.list.answered(
            master, HeartbeatReply(term=1, leader=master, masters=masters, cluster_created_us=cluster_created_us)
        )

    def wait(self, waited_us: int) -> list[NodeId]:
        """Let time pass, and return the nodes that were asked meanwhile."""
        before, until_us = len(self.asked), self.now_us + waited_us
        while self.now_us < until_us:
            self.now_us += ASK_US // 10
            self.list.look()
        return [node for node, _ in self.asked[before:]]

    def tell(self, masters: TabletConfig | None, cluster_created_us: int = ONE) -> None:
        """Answer the last question as another tablet server does."""
        node, answer = self.asked[-1]
        view = MastersView(node_id=node, config=masters, leader=None, cluster_created_us=cluster_created_us)
        answer.set_result(SimpleNamespace(body=[encode(view)]))

    def store(self, error: Exception | None = None) -> None:
        work, done = self.pending.pop(0)
        if error is None:
            work()
        done(error)


class Future(asyncio.Future[Any]):
    """An answer whose callbacks run at once."""

    def __init__(self) -> None:
        super().__init__(loop=MagicMock(call_soon=lambda call, *args, context: call(*args)))


def test_a_config_is_told_once_a_restart_would_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that only it knew was removed and stopped while the config was on its way to the disk."""
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    assert server.list.told is None and set(server.list.addresses) == {A, B}, "it turns to both at once"
    server.store()
    assert server.list.told == server.told[-1] == stored(7, A, B)
    server.hear(None)
    assert not server.pending


def test_a_config_that_cannot_be_stored_is_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk was tried once, and the next restart turned to masters that were gone."""
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    server.hear(config(7, A, B))
    server.store(StorageError("no space left on the device"))
    assert server.list.told == server.told[-1] == stored(7, A, B), "its disk does not hold up the masters"
    assert not server.pending and not server.disk
    server.hear(None)
    server.store()
    assert server.disk == [stored(7, A, B)] and server.list.told == stored(7, A, B)


def test_the_newest_config_is_stored_after_an_older_one_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    server.hear(config(8, B))
    server.store()
    assert server.list.told == stored(7, A, B)
    server.store()
    assert server.list.told == server.told[-1] == stored(8, B) and not server.pending


def test_a_server_that_hears_no_leader_asks_all_nodes_that_it_knows_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All masters that it knew were replaced while it could not reach them, so no heartbeat ever had an answer."""
    server = Server(monkeypatch)
    server.hear(config(7, B), B)
    server.store()
    assert server.links == {B, C, D} and not server.wait(LOST_US)
    asked = server.wait(ASK_US * 8)
    assert set(asked[:4]) == {A, B, C, D} and asked[4:] == asked[:4], "the file lists A, and C and D are other servers"
    server.tell(config(9, E))
    assert set(server.list.addresses) == {A, E}, "until the new master answers"
    server.hear(None, E)
    assert set(server.list.addresses) == {E} and not server.wait(LOST_US)
    server.store()
    assert server.disk == [stored(7, B), stored(9, E)]


def test_a_server_that_is_asked_and_knows_no_newer_masters_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.hear(config(7, B), B)
    server.wait(LOST_US + ASK_US)
    told = len(server.told)
    server.tell(config(5, A, B))
    server.wait(ASK_US)
    server.tell(None)
    server.wait(ASK_US)
    server.asked[-1][1].set_exception(Unavailable("it is down"))
    assert set(server.list.addresses) == {A, B} and len(server.told) == told
    assert server.wait(ASK_US), "it asks on"


def test_masters_of_another_cluster_are_ignored_and_told_once_with_what_to_correct(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file listed the master of another cluster, and its config had the higher op id."""
    server = Server(monkeypatch)
    server.hear(config(7, B), B)
    server.store()
    for _ in range(2):
        server.wait(LOST_US + ASK_US)
        server.tell(config(9, E), cluster_created_us=TWO)
    server.hear(config(9, E), B, TWO)
    assert server.list.told == stored(7, B) and not server.pending and E not in server.list.addresses
    (told,) = [record.getMessage() for record in caplog.records if "ignored masters" in record.getMessage()]
    assert "created at 2023-11-14 22:13:20.000001 UTC: e:1:VOTER; this server belongs to" in told
    assert "created at 2023-11-14 22:13:20.000000 UTC; correct [masters]" in told


def test_a_lost_server_is_handed_to_the_masters_of_a_new_catalog_and_answers_once_they_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch)
    server.hear(config(7, B), B)
    server.store()
    with pytest.raises(RecoveryNotYet, match="the masters of this server lead, so they are not lost: b:1"):
        server.hand(config(1, E))
    server.wait(LOST_US + ASK_US)
    for wrong in ({"instead_of_us": TWO + 1}, {"masters": config(1)}):
        with pytest.raises(RecoveryRefused):
            server.hand(**{"masters": config(1, E), **wrong})  # type: ignore[arg-type]
    first = server.hand(config(1, E))
    server.store(StorageError("no space left on the device"))
    assert isinstance(first[0], Unavailable) and len(first) == 1
    again = server.hand(config(1, E))
    assert again == [] and E in server.list.addresses
    server.store()
    assert again == [None] and server.disk[-1] == server.list.told == stored(1, E, cluster_created_us=TWO)
    assert server.hand(config(1, E)) == [None] and not server.pending, "it is repeated without an effect"
    server.hear(config(8, B), B)
    assert server.list.told == stored(1, E, cluster_created_us=TWO)


def test_a_server_that_knows_only_its_file_is_handed_to_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecoveryRefused, match="does not belong to the lost catalog"):
        Server(monkeypatch).hand(config(1, E))
