"""Servers learn the masters with the answers to their heartbeats, and a leader of another bootstrap gets no reports."""

from __future__ import annotations

import msgspec

from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply
from stelae.protocol.masters_messages import creation_text
from stelae.server.master.core.events import HeartbeatReceived, MasterLeaderChanged, MastersChanged, Refuse, Reply
from stelae.spi.errors import Unavailable
from stelae.spi.ids import IncarnationId, OpId
from stelae.spi.members import Member, TabletConfig
from tests.unit.master.master_with_servers import ME, OTHER, SERVERS, MasterWithServers, only

CONFIG = TabletConfig(
    op_id=OpId(2, 7), members=(Member(node_id=ME, address="a:1"), Member(node_id=OTHER, address="b:1"))
)


def heartbeat(
    cluster: MasterWithServers, masters: OpId | None, sequence: int = 1, cluster_created_us: int = 0
) -> HeartbeatReply | Refuse:
    """The answer to the heartbeat of a server that knows a config of the masters."""
    said = Heartbeat(
        node_id=SERVERS[0],
        incarnation=IncarnationId("1" * 16),
        sequence=sequence,
        address="s:1",
        masters=masters,
        cluster_created_us=cluster_created_us,
    )
    effects = cluster.step(HeartbeatReceived(token=900 + sequence, heartbeat=said))
    (answer,) = [effect for effect in effects if isinstance(effect, Reply | Refuse) and effect.token == 900 + sequence]
    if isinstance(answer, Refuse):
        return answer
    assert isinstance(answer.body, HeartbeatReply)
    return answer.body


def leading() -> MasterWithServers:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.commit()
    cluster.step(MastersChanged(CONFIG, CONFIG.op_id))
    return cluster


def masters_in(answer: HeartbeatReply | Refuse) -> TabletConfig | None:
    assert isinstance(answer, HeartbeatReply)
    return answer.masters


def test_a_server_gets_the_masters_only_if_it_knows_an_older_config() -> None:
    cluster = leading()
    assert masters_in(heartbeat(cluster, None, 1)) == CONFIG
    assert masters_in(heartbeat(cluster, OpId(2, 6), 2)) == CONFIG
    assert masters_in(heartbeat(cluster, OpId(2, 7), 3)) is None
    newer = msgspec.structs.replace(CONFIG, op_id=OpId(3, 1))
    cluster.step(MastersChanged(newer, newer.op_id))
    assert masters_in(heartbeat(cluster, OpId(2, 7), 4)) == newer


def test_a_master_that_does_not_lead_tells_the_masters_too() -> None:
    cluster = leading()
    cluster.follow(2)
    assert masters_in(heartbeat(cluster, None)) == CONFIG
    assert masters_in(heartbeat(cluster, OpId(9, 9), 2)) is None, "a follower lags, that is all"


def test_a_server_that_knows_a_newer_config_is_not_live_for_a_master_that_begins_to_lead_afterwards() -> None:
    """A new catalog listed servers of the lost one, and could place replicas on them, if it had heard them early."""
    cluster = leading()
    cluster.follow(2)
    assert isinstance(heartbeat(cluster, OpId(9, 9)), HeartbeatReply)
    cluster.lead(3)
    assert cluster.core.servers.get(SERVERS[0]) is None


def test_before_the_cluster_is_on_record_lists_count_and_nothing_is_told() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = "not all agree"
    cluster.lead(1)
    cluster.step(MastersChanged(CONFIG, CONFIG.op_id))
    assert masters_in(heartbeat(cluster, None)) is None


def test_a_leader_whose_log_lacks_the_config_of_a_server_refuses_it_and_does_not_count_it_as_live() -> None:
    """It is deposed and does not know it yet."""
    cluster = leading()
    answer = heartbeat(cluster, OpId(2, 8))
    assert isinstance(answer, Refuse) and answer.code == Unavailable.code and answer.retryable
    assert "lacks config 2.8 of the masters" in answer.detail and "stelae master list" in answer.detail
    assert cluster.core.servers.get(SERVERS[0]) is None


def test_a_server_of_another_cluster_is_refused_whatever_config_it_knows_and_is_not_live() -> None:
    """Its file listed a master of this cluster by mistake, whose id is the same. It took the newer config for good."""
    cluster = leading()
    ours = cluster.core.catalog.cluster_created_us
    for sequence, masters in ((1, OpId(2, 6)), (2, OpId(2, 7)), (3, OpId(2, 8)), (4, None)):
        answer = heartbeat(cluster, masters, sequence, ours - 1)
        assert isinstance(answer, Refuse) and answer.code == Unavailable.code and answer.retryable
    assert f"that of this master was created at {creation_text(ours)}" in answer.detail
    assert f"that of the server was created at {creation_text(ours - 1)}" in answer.detail
    assert "correct [masters]" in answer.detail and "stelae recover catalog" in answer.detail
    cluster.follow(2)
    assert isinstance(heartbeat(cluster, OpId(2, 6), 5, ours - 1), Refuse), "its own log says so, too"
    assert cluster.core.servers.get(SERVERS[0]) is None
    answer = heartbeat(cluster, OpId(2, 6), 6, ours)
    assert isinstance(answer, HeartbeatReply) and (answer.masters, answer.cluster_created_us) == (CONFIG, ours)


def test_a_leader_that_is_about_to_found_a_cluster_refuses_the_servers_of_a_lost_one() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = "not all agree"
    cluster.step(MastersChanged(CONFIG, CONFIG.op_id))
    assert heartbeat(cluster, OpId(2, 6), 1, 7) == HeartbeatReply(term=0, leader=None), "perhaps it lags, that is all"
    cluster.lead(1)
    answer = heartbeat(cluster, OpId(2, 6), 2, 7)
    assert isinstance(answer, Refuse) and "that of this master is about to be created" in answer.detail
    assert cluster.core.servers.get(SERVERS[0]) is None


def test_a_creation_that_no_clock_says_is_refused_in_words() -> None:
    answer = heartbeat(leading(), None, 1, 1 << 62)
    assert isinstance(answer, Refuse) and f"created at {1 << 62} us" in answer.detail


def test_a_new_leader_that_has_a_config_in_its_log_and_does_not_know_it_committed_refuses_nobody() -> None:
    cluster = leading()
    cluster.step(MastersChanged(CONFIG, OpId(2, 9)))
    assert isinstance(heartbeat(cluster, OpId(2, 9)), HeartbeatReply)
    assert only(cluster.step(MasterLeaderChanged(3, OTHER)), Refuse) == []


def test_no_master_is_removed_before_every_live_server_knows_the_committed_config() -> None:
    """A server that knew only the master which was removed and stopped was lost for good."""
    cluster = leading()
    settings = cluster.settings
    heartbeat(cluster, None, 1)
    assert "has just started" in cluster.core.obstacle_to_removal(cluster.now_us)
    cluster.pass_ms(settings.server_silent_ms + 1)
    assert cluster.core.obstacle_to_removal(cluster.now_us) == "", "a server that is silent holds up nobody"
    for sequence, known in ((2, None), (3, OpId(2, 6))):
        heartbeat(cluster, known, sequence)
        obstacle = cluster.core.obstacle_to_removal(cluster.now_us)
        assert obstacle == "1 of the live tablet servers do not know config 2.7 of the masters yet, as s:1"
    heartbeat(cluster, OpId(2, 7), 4)
    assert cluster.core.obstacle_to_removal(cluster.now_us) == ""
