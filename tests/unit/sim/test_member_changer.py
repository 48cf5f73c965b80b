"""The limit on member changes: the first ones are sent as without it, and the others are drawn but not sent."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from stelae.sim.coverage import Coverage
from stelae.sim.member_changer import SimMemberChanger
from stelae.sim.profile import ProfileKind, draw_profile
from stelae.sim.run_parts import RunParts
from stelae.sim.scheduler import Scheduler
from stelae.sim.world import ObservedNode
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import Member, TabletConfig

NAMES = [NodeId(str(number) * 32) for number in range(5)]
CONFIG = TabletConfig(op_id=ZERO, members=tuple(Member(node_id=name, address="") for name in NAMES[:4]))

ACTS = 40


class SentMessages:
    """The network: keeps what is sent, with its time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.sent: list[tuple[int, tuple[int, int]]] = []

    def send(self, link: tuple[int, int], label: str, deliver: object) -> None:
        self.sent.append((self._scheduler.now_us, link))


class ChangerRig:
    """A changer in a run where node 0 leads and no change has an effect."""

    def __init__(self, changes_max: int | None) -> None:
        self._scheduler, self.coverage, self._rng = Scheduler(), Coverage(), random.Random(5)
        self._network = SentMessages(self._scheduler)
        self._replica = SimpleNamespace(status=SimpleNamespace(config=CONFIG, committed_config=CONFIG, serving=False))
        nodes: Any = [self._node(position, name) for position, name in enumerate(NAMES)]
        world: Any = SimpleNamespace(nodes=[node.view for node in nodes], leader=lambda: 0)
        profile, network = draw_profile(1, ProfileKind.MEMBERSHIP), self._network
        parts = RunParts(self._scheduler, network, nodes, world, profile, self.coverage)  # type: ignore[arg-type]
        self.changer = SimMemberChanger(parts, self._rng, loses_replica=False, changes_max=changes_max)
        self.asked = 0

    def _node(self, position: int, name: NodeId) -> SimpleNamespace:
        view: Any = ObservedNode(position, name)
        view.status = self._replica.status
        replica = SimpleNamespace(
            status=self._replica.status, deliver=self._delivered, member_changes=SimpleNamespace(request=self._request)
        )
        return SimpleNamespace(view=view, replica=replica, has_lost_files=False, run=lambda call: call())

    def _request(self, change: object, seen: object, done: object) -> object:
        return change

    def _delivered(self, event: object) -> None:
        self.asked += 1

    @property
    def sent(self) -> list[tuple[int, tuple[int, int]]]:
        return self._network.sent

    def run(self) -> tuple[int, object]:
        """Let the changer act. Return the time and the state of its random stream afterwards."""
        self.changer.start()
        for _ in range(ACTS):
            self._scheduler.run_one()
        return self._scheduler.now_us, self._rng.getstate()


def test_only_the_first_changes_are_sent_and_the_draws_stay_the_same() -> None:
    full, limited = ChangerRig(None), ChangerRig(6)
    assert full.run() == limited.run()
    assert 6 <= len(limited.sent) <= 12, "some are sent twice"
    assert limited.sent == full.sent[: len(limited.sent)]
    assert len(full.sent) >= ACTS
    assert sum(limited.coverage.counts.values()) <= 6


def test_nothing_is_sent_with_a_limit_of_zero() -> None:
    limited = ChangerRig(0)
    assert limited.run() == ChangerRig(None).run()
    assert limited.sent == []
    assert limited.coverage.counts == {}


def test_a_change_asked_of_a_new_leader_counts_towards_the_limit() -> None:
    full, limited = ChangerRig(None), ChangerRig(1)
    for rig in (full, limited):
        rig.changer.leader_elected(0)
        rig.changer.leader_elected(0)
    assert full.run() == limited.run()
    assert (full.asked, limited.asked) == (2, 1)
    assert limited.sent == []
    assert limited.coverage.counts == {"members.before_serving": 1}
