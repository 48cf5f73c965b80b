"""The serving side of copies: whose sessions end when a node is a member no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stelae.server.tserver.copy_service import EXPIRE_US, CopyService
from stelae.spi.copy import SessionKey, SessionView
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from tests.unit.master.driver_on_fakes import ManualTurns

T = TabletId("t")
HERE, NEW, STOPPED = (NodeId(letter * 32) for letter in "abc")
WITHOUT = TabletConfig(op_id=OpId(1, 1), members=(Member(node_id=HERE, address="a:1"),))
WITH = TabletConfig(op_id=OpId(1, 2), members=(*WITHOUT.members, Member(node_id=NEW, address="b:1")))


class Source:
    """Has sessions, and notes which ones are ended."""

    def __init__(self, *peers: NodeId) -> None:
        self.open = {f"of {peer[0]}": peer for peer in peers}

    def expire(self) -> None:
        pass

    def sessions(self) -> list[SessionView]:
        return [
            SessionView(id=name, key=SessionKey(T, peer, "memory"), bytes_sent=0, idle_ms=0)
            for name, peer in self.open.items()
        ]

    def end(self, peer: NodeId, session: str) -> None:
        assert self.open.pop(session) == peer


class Scene:
    def __init__(self, source: Source) -> None:
        self.source, self.turns = source, ManualTurns()
        self.status = SimpleNamespace(config=WITHOUT, committed_config=WITHOUT)
        self.replicas: dict[TabletId, Any] = {T: SimpleNamespace(status=self.status)}
        node: Any = SimpleNamespace(
            turns=self.turns, replicas=self.replicas, metrics=SimpleNamespace(gauge=lambda *_: None)
        )
        service = CopyService(node)
        service.source = source  # type: ignore[assignment]
        service._expire()

    def look(self, active: TabletConfig, committed: TabletConfig) -> list[NodeId]:
        """The nodes with a session after a look at these configs."""
        self.status.config, self.status.committed_config = active, committed
        self.turns.run(self.turns.now_us() + EXPIRE_US)
        return list(self.source.open.values())


def test_the_session_of_a_member_ends_once_neither_config_lists_it() -> None:
    scene = Scene(Source(NEW, STOPPED))
    for active, committed in ((WITHOUT, WITHOUT), (WITH, WITHOUT), (WITH, WITH), (WITHOUT, WITH)):
        assert scene.look(active, committed) == [NEW, STOPPED]
    assert scene.look(WITHOUT, WITHOUT) == [STOPPED], "a node that is stopped was never listed"


def test_a_removal_that_is_rolled_back_ends_no_session() -> None:
    scene = Scene(Source(NEW))
    for active, committed in ((WITH, WITH), (WITHOUT, WITH), (WITH, WITH)):
        assert scene.look(active, committed) == [NEW]


def test_a_session_of_a_tablet_without_a_replica_here_is_left_alone() -> None:
    scene = Scene(Source(NEW))
    assert scene.look(WITH, WITH) == [NEW]
    scene.replicas.clear()
    assert scene.look(WITHOUT, WITHOUT) == [NEW]
