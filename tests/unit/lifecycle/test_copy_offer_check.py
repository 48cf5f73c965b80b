"""An offer that contradicts itself, or what was asked, is refused before anything of it is used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.host.superblock import Superblock
from stelae.lifecycle.copy_facts import facts_of_files
from stelae.lifecycle.copy_offer_check import check_offer
from stelae.spi.copy_plan import CopyOffer, CopySnapshot
from stelae.spi.errors import PeerError
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import SnapshotUnit

TABLET, SOURCE = TabletId("t1"), NodeId("a" * 32)
BLOCK = Superblock(tablet_id=TABLET, schemas=(b"schema",), flushed=OpId(2, 4))
SNAPSHOT = CopySnapshot(
    tablet_id=TABLET,
    log=LogId(TABLET, 1),
    base=OpId(2, 4),
    last=OpId(3, 9),
    term=3,
    committed_config=TabletConfig(op_id=OpId(2, 3), members=()),
    facts=facts_of_files(BLOCK).to_bytes(),
    items=(SnapshotUnit(name="log/5-9", size_bytes=10, digest="0" * 64),),
)
OFFER = CopyOffer(source=SOURCE, session="run-1", ttl_ms=1000, snapshot=SNAPSHOT)


def test_a_sound_offer_is_returned() -> None:
    assert check_offer(OFFER, SOURCE, TABLET) is OFFER


@pytest.mark.parametrize(
    ("of_offer", "of_snapshot"),
    [
        ({}, {"tablet_id": TabletId("t2")}),
        ({}, {"log": LogId(TabletId("t2"), 1)}),
        ({"source": NodeId("b" * 32)}, {}),
        ({"session": ""}, {}),
        ({"session": "x" * 65}, {}),
        ({"ttl_ms": 0}, {}),
        ({}, {"base": OpId(2, 5), "items": (SnapshotUnit(name="log/6-9", size_bytes=1, digest="0" * 64),)}),
        ({}, {"last": OpId(1, 9)}),
        ({}, {"term": 2}),
        ({}, {"committed_config": TabletConfig(op_id=OpId(3, 10), members=())}),
        ({}, {"committed_config": TabletConfig(op_id=OpId(-1, 1), members=())}),
        ({}, {"log": LogId(TABLET, -1)}),
        ({}, {"facts": b"\x91"}),
        ({}, {"facts": facts_of_files(msgspec.structs.replace(BLOCK, tablet_id=TabletId("t2"))).to_bytes()}),
        ({}, {"facts": facts_of_files(msgspec.structs.replace(BLOCK, schemas=())).to_bytes()}),
        ({}, {"items": ()}),
        ({}, {"items": (SnapshotUnit(name="../instance", size_bytes=10, digest="0" * 64), *SNAPSHOT.items)}),
    ],
)
def test_an_offer_that_contradicts_itself_is_refused(of_offer: dict[str, Any], of_snapshot: dict[str, Any]) -> None:
    snapshot = msgspec.structs.replace(SNAPSHOT, **of_snapshot)
    with pytest.raises(PeerError, match="cannot be used"):
        check_offer(msgspec.structs.replace(OFFER, snapshot=snapshot, **of_offer), SOURCE, TABLET)
