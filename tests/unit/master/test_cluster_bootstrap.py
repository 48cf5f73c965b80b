"""A new cluster begins only once all of its masters name the same masters."""

from __future__ import annotations

from stelae.protocol.master_messages import ListTables
from stelae.server.master.core.cluster_bootstrap import COMPARE_US
from stelae.server.master.core.events import CompareMasters, Refuse, Replicate, Reply
from tests.unit.master.master_with_servers import SERVERS, MasterWithServers, create, full, only

OTHER_LIST = "master b:1 names the masters x, y, z"


def test_nothing_is_put_on_record_before_all_masters_agree() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = OTHER_LIST
    effects = cluster.lead(1)
    for _ in range(20):
        effects += cluster.pass_ms(cluster.settings.scan_interval_ms)
        cluster.heartbeat(SERVERS[0], full())
    assert not only(effects, Replicate) and not cluster.core.status().serving
    (refused,) = only(cluster.ask(create()), Refuse)
    assert refused.retryable and OTHER_LIST in refused.detail and "has not begun" in refused.detail
    cluster.masters_object = ""
    cluster.pass_ms(cluster.settings.scan_interval_ms)
    cluster.commit()
    assert cluster.core.status().serving and cluster.core.catalog.cluster is not None
    cluster.hear()
    cluster.ask(create())
    assert only(cluster.commit(), Reply)


def test_the_others_are_asked_again_and_not_more_often_than_that() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = None
    asked = len(only(cluster.lead(1), CompareMasters))
    for _ in range(10):
        asked += len(only(cluster.pass_ms(COMPARE_US // 10_000), CompareMasters))
    assert asked == 2


def test_a_cluster_on_record_asks_nobody_again() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.pass_ms(cluster.settings.scan_interval_ms)
    cluster.commit()
    cluster.follow(2)
    cluster.masters_object = OTHER_LIST
    effects = cluster.lead(3)
    assert cluster.core.status().serving and not only(effects, CompareMasters)


def test_a_follower_asks_nobody_and_sends_clients_on() -> None:
    cluster = MasterWithServers()
    cluster.masters_object = None
    effects = cluster.follow(1) + cluster.ask(create())
    assert not only(effects, CompareMasters) and [e.code for e in only(effects, Refuse)] == ["NOT_LEADER"]


def test_a_read_before_the_cluster_begins_is_told_what_it_waits_for() -> None:
    """It was sent on to the leader, which was this master. Nothing said that another master had not answered yet."""
    cluster = MasterWithServers()
    cluster.masters_object = OTHER_LIST
    cluster.lead(1)
    for staleness_ms in (0, 1000):
        (refused,) = only(cluster.read(ListTables(), staleness_ms), Refuse)
        assert refused.code == "UNAVAILABLE" and refused.retryable and refused.leader is None
        assert OTHER_LIST in refused.detail and "has not begun" in refused.detail
    cluster.follow(2)
    assert [e.code for e in only(cluster.read(ListTables()), Refuse)] == ["NOT_LEADER"]
