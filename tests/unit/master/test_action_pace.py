"""The actions of one step are bounded. Which of them come first, and which servers get none."""

from __future__ import annotations

from stelae.protocol.actions import DeleteReplica
from stelae.protocol.master_messages import DeleteTable
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, TabletId
from tests.unit.master.master_with_servers import SERVERS, SETTINGS, MasterWithServers, create, sent

FIRST, *OTHERS = SERVERS[:3]


class Deletions(MasterWithServers):
    """A table of eight tablets that was dropped. The servers are asked, and delete nothing."""

    def __init__(self, silent_ms: int = 0) -> None:
        """The first server is silent for that long before the table is dropped."""
        super().__init__(MasterSettings(actions_per_step_max=4))
        self.lead(1)
        self.hear()
        self.tablets = set(self.create_running(create(buckets=8)))
        self.policy_answers = False
        self.now_us += silent_ms * 1000
        for server in OTHERS:
            self.heartbeat(server)
        self.effects.clear()
        self.ask(DeleteTable(table="readings"), 2)
        self.commit()

    def scan(self, times: int) -> None:
        for _ in range(times):
            self.pass_ms(SETTINGS.scan_interval_ms)

    def asked_of(self, server: NodeId) -> set[TabletId]:
        return {a.tablet_id for a in sent(self.effects, DeleteReplica) if a.node_id == server}


def test_actions_without_effect_do_not_keep_back_others() -> None:
    """The same first actions were due again in each step, so the others were never sent."""
    cluster = Deletions()
    cluster.scan(12)
    assert [cluster.asked_of(server) for server in SERVERS[:3]] == [cluster.tablets] * 3


def test_a_dead_server_is_asked_once_it_is_heard_again() -> None:
    cluster = Deletions(silent_ms=2 * SETTINGS.server_dead_ms)
    cluster.scan(12)
    assert [cluster.asked_of(server) for server in SERVERS[:3]] == [set(), cluster.tablets, cluster.tablets]
    cluster.heartbeat(FIRST)
    cluster.scan(12)
    assert cluster.asked_of(FIRST) == cluster.tablets
