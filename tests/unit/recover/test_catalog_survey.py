"""When a new catalog needs an epoch of its own: servers know other masters."""

from __future__ import annotations

import pytest

from stelae.protocol.masters_messages import MastersView
from stelae.recover.catalog_rebuild import CatalogSurvey
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
