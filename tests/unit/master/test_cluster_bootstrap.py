"""A new cluster begins only once all of its masters name the same masters."""

from __future__ import annotations

from stelae.protocol.master_messages import ListTables
from stelae.server.master.core.cluster_bootstrap import COMPARE_US
from stelae.server.master.core.events import CompareMasters, Refuse, Replicate, Reply
from tests.unit.master.company import SERVERS, Company, create, full, only

OTHER_LIST = "master b:1 names the masters x, y, z"


def test_nothing_is_put_on_record_before_all_masters_agree() -> None:
    company = Company()
    company.masters_object = OTHER_LIST
    effects = company.lead(1)
    for _ in range(20):
        effects += company.pass_ms(company.settings.scan_interval_ms)
        company.heartbeat(SERVERS[0], full())
    assert not only(effects, Replicate) and not company.core.status().serving
    (refused,) = only(company.ask(create()), Refuse)
    assert refused.retryable and OTHER_LIST in refused.detail and "has not begun" in refused.detail
    company.masters_object = ""
    company.pass_ms(company.settings.scan_interval_ms)
    company.commit()
    assert company.core.status().serving and company.core.catalog.cluster is not None
    company.hear()
    company.ask(create())
    assert only(company.commit(), Reply)


def test_the_others_are_asked_again_and_not_more_often_than_that() -> None:
    company = Company()
    company.masters_object = None
    asked = len(only(company.lead(1), CompareMasters))
    for _ in range(10):
        asked += len(only(company.pass_ms(COMPARE_US // 10_000), CompareMasters))
    assert asked == 2


def test_a_cluster_on_record_asks_nobody_again() -> None:
    company = Company()
    company.lead(1)
    company.pass_ms(company.settings.scan_interval_ms)
    company.commit()
    company.follow(2)
    company.masters_object = OTHER_LIST
    effects = company.lead(3)
    assert company.core.status().serving and not only(effects, CompareMasters)


def test_a_follower_asks_nobody_and_sends_clients_on() -> None:
    company = Company()
    company.masters_object = None
    effects = company.follow(1) + company.ask(create())
    assert not only(effects, CompareMasters) and [e.code for e in only(effects, Refuse)] == ["NOT_LEADER"]


def test_a_read_before_the_cluster_begins_is_told_what_it_waits_for() -> None:
    """It was sent on to the leader, which was this master. Nothing said that another master had not answered yet."""
    company = Company()
    company.masters_object = OTHER_LIST
    company.lead(1)
    for staleness_ms in (0, 1000):
        (refused,) = only(company.read(ListTables(), staleness_ms), Refuse)
        assert refused.code == "UNAVAILABLE" and refused.retryable and refused.leader is None
        assert OTHER_LIST in refused.detail and "has not begun" in refused.detail
    company.follow(2)
    assert [e.code for e in only(company.read(ListTables()), Refuse)] == ["NOT_LEADER"]
