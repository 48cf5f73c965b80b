"""When the policy is asked: after its interval, and soon after members have changed."""

from __future__ import annotations

import msgspec
import pytest

from stelae.server.master.core.events import AskPolicy
from stelae.spi.ids import OpId
from stelae.spi.members import Member, MemberType, TabletConfig
from tests.unit.master.company import SETTINGS, Company, changes, only, status
from tests.unit.master.planned import FOURTH, LEADER, Planner, config_of, the_tablet, with_a_tablet

SOON, INTERVAL = SETTINGS.policy_soon_ms, SETTINGS.policy_interval_ms


@pytest.fixture
def company(planner: Planner) -> Company:
    """The policy has just been asked, and has answered."""
    led = with_a_tablet(planner)
    while not only(led.pass_ms(1), AskPolicy):
        pass
    return led


def put_on_record(company: Company, config: TabletConfig, upto: int) -> None:
    """The leader reports a config, and the masters put it on record."""
    leader = status(the_tablet(company), config, op_id=config.op_id, leads=True)
    company.heartbeat(LEADER, changes(leader, since=upto - 1, upto=upto))
    company.commit()
    assert config_of(company) == config


def with_a_fourth(company: Company, member_type: MemberType) -> TabletConfig:
    """Return the next config of the tablet: the fourth server is a member of that type."""
    before = config_of(company)
    others = tuple(member for member in before.members if member.node_id != FOURTH)
    fourth = Member(node_id=FOURTH, address="tcp://127.0.0.1:7400", member_type=member_type)
    op_id = OpId(1, before.op_id.index + 5)
    return msgspec.structs.replace(before, op_id=op_id, members=(*others, fourth))


def test_the_policy_plans_again_soon_after_members_have_changed(company: Company) -> None:
    put_on_record(company, with_a_fourth(company, MemberType.PRE_VOTER), upto=2)
    assert only(company.pass_ms(SOON - 1), AskPolicy) == []
    assert len(only(company.pass_ms(1), AskPolicy)) == 1
    assert only(company.pass_ms(INTERVAL - 1), AskPolicy) == []
    assert len(only(company.pass_ms(1), AskPolicy)) == 1


def test_several_changes_bring_one_plan_that_the_later_ones_do_not_delay(company: Company) -> None:
    put_on_record(company, with_a_fourth(company, MemberType.PRE_VOTER), upto=2)
    company.pass_ms(SOON - 1)
    put_on_record(company, with_a_fourth(company, MemberType.VOTER), upto=3)
    assert len(only(company.pass_ms(1), AskPolicy)) == 1
    assert only(company.pass_ms(INTERVAL - 1), AskPolicy) == []


def test_a_config_of_the_same_members_brings_no_plan(company: Company) -> None:
    before = config_of(company)
    put_on_record(company, msgspec.structs.replace(before, op_id=OpId(1, before.op_id.index + 5)), upto=2)
    assert only(company.pass_ms(INTERVAL - 1), AskPolicy) == []


def test_a_change_while_the_policy_plans_brings_another_plan(company: Company) -> None:
    company.policy_answers = False
    (asked,) = only(company.pass_ms(INTERVAL), AskPolicy)
    put_on_record(company, with_a_fourth(company, MemberType.PRE_VOTER), upto=2)
    company.step(company.plan(asked))
    assert len(only(company.pass_ms(SOON), AskPolicy)) == 1


def test_a_change_does_not_shorten_the_rest_after_a_long_plan(company: Company) -> None:
    company.policy_answers = False
    (asked,) = only(company.pass_ms(INTERVAL), AskPolicy)
    company.pass_ms(INTERVAL)
    company.step(company.plan(asked))
    put_on_record(company, with_a_fourth(company, MemberType.PRE_VOTER), upto=2)
    assert only(company.pass_ms(INTERVAL * 9 - 1), AskPolicy) == []
    assert len(only(company.pass_ms(1), AskPolicy)) == 1
