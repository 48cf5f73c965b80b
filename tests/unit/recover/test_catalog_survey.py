"""When a new catalog needs an epoch of its own: servers know other masters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import encode
from stelae.protocol.masters_messages import MastersView
from stelae.protocol.recovery_messages import RECOVER, SURVEY, SurveyReply, SurvivorView
from stelae.recover import catalog_rebuild
from stelae.recover.catalog_rebuild import CatalogSurvey, begin_epoch
from stelae.spi.errors import (
    AlreadyRecovered,
    MemberChangeRefused,
    Overloaded,
    RecoveryOutdated,
    RecoveryRefused,
    StelaeError,
    Unsupported,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

NEW, LOST = NodeId("a" * 32), NodeId("b" * 32)


def config(index: int, *masters: NodeId) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, index), members=tuple(Member(node_id=one, address="m:1") for one in masters))


@pytest.mark.parametrize(
    ("remembered", "needed"),
    [
        ([], False),
        ([config(1, NEW)], False),
        ([config(2, LOST)], True),
        ([config(1, LOST)], True),  # The lost masters had never changed, so the op id is the same.
        ([config(1, NEW), config(7, LOST)], True),
    ],
)
def test_an_epoch_is_needed_if_a_server_knows_a_config_of_lost_masters(
    remembered: list[TabletConfig], needed: bool
) -> None:
    survey = CatalogSurvey(MastersView(node_id=NEW, config=config(1, NEW), leader=NEW), [])
    survey.remembered += remembered
    assert survey.needs_epoch is needed


VIEW = SurvivorView(tablet_id=SYSTEM_TABLET, state="LEADER", last=OpId(1, 9), config=config(1, NEW))


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_rebuild, "PAUSE_S", 0.0)


class Master:
    """A connection to one master: it refuses the first requests for an epoch with these errors in turn."""

    def __init__(self, *refusals: StelaeError, view: SurvivorView | None = None) -> None:
        self.refusals, self.view, self.asked = list(refusals), view or VIEW, 0

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
    survey = CatalogSurvey(MastersView(node_id=NEW, config=config(1, NEW), leader=NEW), [])
    survey.remembered += [config(2, LOST)]
    asyncio.run(begin_epoch(connection, survey, 7, timeout_s=60.0))


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
