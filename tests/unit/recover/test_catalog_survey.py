"""When a new catalog needs an epoch of its own, and which servers are handed to it: servers know other masters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MastersView
from stelae.protocol.recovery_messages import (
    FOLLOW_MASTERS,
    RECOVER,
    SURVEY,
    FollowMastersRequest,
    SurveyReply,
    SurvivorView,
)
from stelae.recover import catalog_rebuild
from stelae.recover.catalog_rebuild import CatalogSurvey, begin_epoch, hand_over
from stelae.spi.errors import (
    AlreadyRecovered,
    MemberChangeRefused,
    Overloaded,
    RecoveryNotYet,
    RecoveryOutdated,
    RecoveryRefused,
    StelaeError,
    Unavailable,
    Unsupported,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

NEW, LOST = NodeId("a" * 32), NodeId("b" * 32)
CREATED_US = {LOST: 1_700_000_000_000_000, NEW: 1_700_000_000_000_001}


def config(index: int, *masters: NodeId) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, index), members=tuple(Member(node_id=one, address="m:1") for one in masters))


def view(index: int, master: NodeId) -> MastersView:
    """What a server says that follows the new master, or the lost one."""
    return MastersView(node_id=NEW, config=config(index, master), leader=None, cluster_created_us=CREATED_US[master])


def surveyed(*remembered: MastersView) -> CatalogSurvey:
    survey = CatalogSurvey(view(3, NEW), [])
    survey.remembered |= {f"s{number}:1": one for number, one in enumerate(remembered)}
    return survey


@pytest.mark.parametrize(
    ("remembered", "needed", "astray"),
    [
        ([], False, []),
        ([MastersView(node_id=NEW, config=None, leader=None)], False, []),  # It knows only its file.
        ([view(3, NEW)], False, []),
        ([view(2, LOST)], False, ["s0:1"]),
        ([view(4, LOST)], True, ["s0:1"]),
        ([view(3, LOST)], True, ["s0:1"]),  # The lost masters had never changed, so the op id may be the same.
        ([view(3, NEW), view(7, LOST)], True, ["s1:1"]),
    ],
)
def test_servers_of_lost_masters_are_handed_over_and_an_epoch_is_needed_if_their_config_is_not_older(
    remembered: list[MastersView], needed: bool, astray: list[str]
) -> None:
    survey = surveyed(*remembered)
    assert survey.needs_epoch is needed and list(survey.astray) == astray


SURVIVOR = SurvivorView(tablet_id=SYSTEM_TABLET, state="LEADER", last=OpId(1, 9), config=config(1, NEW))


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_rebuild, "PAUSE_S", 0.0)


class Master:
    """A connection to one master: it refuses the first requests for an epoch with these errors in turn."""

    def __init__(self, *refusals: StelaeError, view: SurvivorView | None = None) -> None:
        self.refusals, self.view, self.asked = list(refusals), view or SURVIVOR, 0

    async def reach(self, address: str, **_: object) -> NodeId:
        return NEW

    async def ask(self, node: NodeId, kind: str, body: bytes, **_: object) -> SimpleNamespace:
        if kind == SURVEY:
            return SimpleNamespace(body=[encode(SurveyReply((self.view,)))])
        assert kind == RECOVER
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return SimpleNamespace(body=[])


def begun(master: Master) -> None:
    connection: Any = master
    asyncio.run(begin_epoch(connection, surveyed(view(4, LOST)), 7, timeout_s=60.0))


def test_an_epoch_is_asked_for_again_if_the_log_has_gone_on_or_the_master_is_busy(no_pauses: None) -> None:
    master = Master(RecoveryOutdated("its log has gone on; look again"), Overloaded("busy; ask again"))
    begun(master)
    assert master.asked == 3
    begun(Master(AlreadyRecovered("an answer was lost")))


@pytest.mark.parametrize(
    "refusal", [RecoveryRefused("failed; restart it"), Unsupported("no engine"), MemberChangeRefused("no member")]
)
def test_a_refusal_that_does_not_pass_is_raised_at_once(refusal: StelaeError, no_pauses: None) -> None:
    """It was repeated until the timeout, and reported as if the master had not answered in time."""
    master = Master(refusal)
    with pytest.raises(type(refusal), match=str(refusal)):
        begun(master)
    assert master.asked == 1


def test_a_system_tablet_that_has_failed_is_named_at_once(no_pauses: None) -> None:
    failed = SurvivorView(tablet_id=SYSTEM_TABLET, state="FAILED", failure="its log is damaged")
    master = Master(view=failed)
    with pytest.raises(RecoveryRefused, match="of m:1 has failed: its log is damaged; restart the master"):
        begun(master)
    assert master.asked == 0


class Servers:
    """A connection to servers, which refuse the first requests with these errors in turn."""

    def __init__(self, *refusals: StelaeError) -> None:
        self.refusals = list(refusals)
        self.handed: list[tuple[str, FollowMastersRequest]] = []

    async def reach(self, address: str, **_: object) -> str:
        return address

    async def ask(self, node: str, kind: str, body: bytes, **_: object) -> None:
        assert kind == FOLLOW_MASTERS
        if self.refusals:
            raise self.refusals.pop(0)
        self.handed.append((node, decode(body, FollowMastersRequest)))


def handed(servers: Servers, present: MastersView, timeout_s: float = 60.0) -> None:
    async def masters_view(**_: object) -> MastersView:
        return present

    connection: Any = servers
    catalog: Any = SimpleNamespace(masters_view=masters_view)
    survey = surveyed(view(4, LOST), view(3, NEW), view(5, LOST))
    asyncio.run(hand_over(connection, catalog, survey, timeout_s=timeout_s))


def test_each_server_of_the_lost_masters_is_handed_to_the_present_config_of_the_new_ones(no_pauses: None) -> None:
    """The recovery epoch has changed the config since the survey."""
    servers = Servers(RecoveryNotYet("it has just started"))
    handed(servers, view(9, NEW))
    request = FollowMastersRequest(CREATED_US[NEW], config(9, NEW), CREATED_US[LOST])
    assert servers.handed == [("s0:1", request), ("s2:1", request)]


def test_nothing_is_handed_over_once_a_server_refuses_or_before_the_catalog_is_on_record(no_pauses: None) -> None:
    with pytest.raises(Unavailable, match="server s0:1 was not handed to the new masters: its masters lead"):
        handed(servers := Servers(RecoveryNotYet("its masters lead")), view(9, NEW), timeout_s=0.0)
    assert servers.handed == []
    with pytest.raises(RecoveryRefused, match="another catalog"):
        handed(Servers(RecoveryRefused("another catalog")), view(9, NEW))
    with pytest.raises(Unavailable, match="when it was created"):
        handed(Servers(), MastersView(node_id=NEW, config=config(1, NEW), leader=NEW))
