"""What a tablet server tells of the masters that it knows: a config that it has stored, or cannot store."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.master_heartbeats import HeartbeatReply
from stelae.server.tserver import master_list
from stelae.server.tserver.master_list import MasterList
from stelae.spi.errors import StorageError
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

A, B = (NodeId(letter * 32) for letter in "ab")


def config(index: int, *nodes: NodeId) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, index), members=tuple(Member(node_id=n, address=f"{n[0]}:1") for n in nodes))


class Server:
    """A list of masters on a node whose disk does what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk: list[TabletConfig] = []
        self.pending: list[tuple[Callable[[], None], Callable[[object], None]]] = []
        monkeypatch.setattr(master_list, "load_masters", lambda files, layout: self.disk[-1] if self.disk else None)
        monkeypatch.setattr(master_list, "save_masters", lambda files, layout, stored: self.disk.append(stored))
        self.told: list[OpId | None] = []
        messenger = SimpleNamespace(serve=_nothing, add_peer=_nothing, remove_peer=_nothing)
        pool = SimpleNamespace(run=lambda key, work, done: self.pending.append((work, done)))
        listed = SimpleNamespace(masters=config(0, A).members)
        node: Any = SimpleNamespace(
            config=listed, files=None, layout=None, messenger=messenger, metadata_pool=pool, node_id=NodeId("f" * 32)
        )
        self.list = MasterList(node, lambda: self.told.append(self.list.config_id))
        self.list.start()

    def hear(self, masters: TabletConfig | None) -> None:
        self.list.answered(A, HeartbeatReply(term=1, leader=A, masters=masters))

    def store(self, error: Exception | None = None) -> None:
        work, done = self.pending.pop(0)
        if error is None:
            work()
        done(error)


def _nothing(*_: object) -> None:
    pass


def test_a_config_is_told_once_a_restart_would_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that only it knew was removed and stopped while the config was on its way to the disk."""
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    assert server.list.config_id is None and set(server.list.addresses) == {A, B}, "it turns to both at once"
    server.store()
    assert server.list.config_id == server.told[-1] == OpId(1, 7)
    server.hear(None)
    assert not server.pending


def test_a_config_that_cannot_be_stored_is_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk was tried once, and the next restart turned to masters that were gone."""
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    server.hear(config(7, A, B))
    server.store(StorageError("no space left on the device"))
    assert server.list.config_id == server.told[-1] == OpId(1, 7), "its disk does not hold up the masters"
    assert not server.pending and not server.disk
    server.hear(None)
    server.store()
    assert server.disk == [config(7, A, B)] and server.list.config_id == OpId(1, 7)


def test_the_newest_config_is_stored_after_an_older_one_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.hear(config(7, A, B))
    server.hear(config(8, B))
    server.store()
    assert server.list.config_id == OpId(1, 7)
    server.store()
    assert server.list.config_id == server.told[-1] == OpId(1, 8) and not server.pending
