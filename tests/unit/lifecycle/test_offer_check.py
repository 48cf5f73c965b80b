"""An offer that contradicts itself, or what was asked, is refused before anything of it is used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.host.superblock import Superblock
from stelae.lifecycle.copy_facts import facts_of_files
from stelae.lifecycle.offer_check import check_session, contradiction
from stelae.spi.copy_plan import CopyOffer, CopySnapshot
from stelae.spi.errors import PeerError
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term
from stelae.spi.wal import SnapshotUnit
from tests.unit.lifecycle.disk_node import SCHEMA

TABLET, SOURCE = TabletId("t1"), NodeId("a" * 32)
BLOCK = Superblock(tablet_id=TABLET, schemas=(SCHEMA.to_bytes(),), flushed=OpId(2, 4))
SNAPSHOT = CopySnapshot(
    tablet_id=TABLET,
    log=LogId(TABLET, 1),
    base=OpId(2, 4),
    last=OpId(3, 9),
    term=3,
    committed_config=TabletConfig(op_id=OpId(2, 3), members=()),
    facts=facts_of_files(BLOCK, "1").to_bytes(),
    items=(SnapshotUnit(name="log/5-9", size_bytes=10, digest="0" * 64),),
)
OFFER = CopyOffer(source=SOURCE, session="run-1", ttl_ms=1000, snapshot=SNAPSHOT)


def test_a_sound_offer_is_returned() -> None:
    assert check_session(OFFER, SOURCE) is OFFER
    assert contradiction(SNAPSHOT, TABLET) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"source": NodeId("b" * 32)},
        {"source": NodeId("x" * 10_000)},
        {"session": ""},
        {"session": "x" * 65},
        {"ttl_ms": 0},
    ],
)
def test_a_session_that_cannot_be_used_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="cannot be used") as refused:
        check_session(msgspec.structs.replace(OFFER, **changed), SOURCE)
    assert len(str(refused.value)) < 300


def facts(**changed: Any) -> bytes:
    return facts_of_files(msgspec.structs.replace(BLOCK, **changed), "1").to_bytes()


def item(name: str) -> tuple[SnapshotUnit, ...]:
    return (SnapshotUnit(name=name, size_bytes=1, digest="0" * 64),)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tablet_id": TabletId("t2")}, "it is of tablet t2"),
    ({"log": LogId(TabletId("t2"), 1)}, "its log of t2"),
    ({"facts": facts(tablet_id=TabletId("t2"))}, "its rows of t2"),
    ({"base": OpId(2, 5), "items": item("log/6-9")}, "the rows are as of 2.4"),
    ({"last": OpId(1, 9)}, "ends before it begins"),
    ({"last": OpId(3, 3)}, "ends before it begins"),
    ({"term": 2}, "the source is in term 2"),
    ({"term": first_term(EPOCHS_AHEAD_MAX + 1, 0)}, "too many recoveries later"),
    ({"committed_config": TabletConfig(op_id=OpId(3, 10), members=())}, "config 3.10 is committed"),
    ({"committed_config": TabletConfig(op_id=OpId(4, 3), members=())}, "config 4.3 is committed"),
    ({"committed_config": TabletConfig(op_id=OpId(-1, 1), members=())}, "is below 0"),
    ({"log": LogId(TABLET, -1)}, "is below 0"),
    ({"facts": b"\x91"}, "cannot be read"),
    ({"facts": facts(schemas=())}, "do not increase"),
    ({"facts": facts(schemas=(SCHEMA.to_bytes(),) * 2)}, "do not increase"),
    ({"items": ()}, "the items have the log up to 4"),
    ({"items": item("../instance") + SNAPSHOT.items}, "is not the name of an item"),
    ({"items": item("export/00000000") + SNAPSHOT.items}, "there are other items"),
]


@pytest.mark.parametrize(("changed", "why"), WRONG)
def test_a_snapshot_that_contradicts_itself_or_what_was_asked_is_found(changed: dict[str, Any], why: str) -> None:
    found = contradiction(msgspec.structs.replace(SNAPSHOT, **changed), TABLET)
    assert found is not None and why in found
