"""Whether the tablets that a client knows are those of the table, as the masters tell it before a scan."""

from __future__ import annotations

from stelae.client.catalog import location_of
from stelae.partition.schema import KeyRange
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.master_messages import (
    AddRange,
    AlterTable,
    AreCurrent,
    Currency,
    DropRange,
    GetTable,
    TableDescription,
    tablets_digest,
)
from stelae.server.master.core.events import Reply
from stelae.spi.ids import TabletId
from tests.unit.master.master_with_servers import MasterWithServers, create, only, refusals

LAST = KeyRange(b"00001", None)


def led(ranges: int = 2) -> tuple[MasterWithServers, list[TabletId]]:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    return cluster, cluster.create_running(create(buckets=2, ranges=ranges))


def current(cluster: MasterWithServers, tablets: list[TabletId]) -> bool:
    (reply,) = only(cluster.read(AreCurrent(table="readings", digest=tablets_digest(tablets))), Reply)
    assert isinstance(reply.body, Currency)
    return reply.body.current


def served(cluster: MasterWithServers) -> list[TabletId]:
    """The tablets that a client would know who asks now."""
    (reply,) = only(cluster.read(GetTable(table="readings")), Reply)
    assert isinstance(reply.body, TableDescription)
    return [tablet.tablet_id for tablet in location_of(reply.body).tablets]


def test_all_tablets_are_current_in_any_order_and_neither_fewer_nor_others_are() -> None:
    cluster, tablets = led()
    assert current(cluster, tablets) and current(cluster, tablets[::-1])
    assert not current(cluster, tablets[1:]) and not current(cluster, [*tablets, TabletId("other")])
    assert sorted(served(cluster)) == sorted(tablets)
    assert refusals(cluster.read(AreCurrent(table="nothing", digest=1))) == ["NO_TABLE"]


def test_a_range_counts_once_all_of_its_tablets_run_and_no_more_when_it_is_dropped() -> None:
    cluster, tablets = led()
    cluster.ask(AlterTable(table="readings", steps=(DropRange(range=LAST),)), 2)
    cluster.commit()
    left = [t.tablet_id for t in cluster.core.catalog.tablets.values() if not t.terminal]
    assert len(left) == 2 and current(cluster, left) and not current(cluster, tablets)
    cluster.ask(AlterTable(table="readings", steps=(AddRange(range=LAST),)), 3)
    cluster.commit()
    states = [t.state for t in cluster.core.catalog.tablets.values() if not t.terminal]
    assert states.count(TabletState.RUNNING) == 2 and len(states) == 4
    assert current(cluster, left) and sorted(served(cluster)) == sorted(left)
