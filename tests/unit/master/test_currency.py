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
from tests.unit.master.company import Company, create, only, refusals

LAST = KeyRange(b"00001", None)


def led(ranges: int = 2) -> tuple[Company, list[TabletId]]:
    company = Company()
    company.lead(1)
    company.hear()
    return company, company.create_running(create(buckets=2, ranges=ranges))


def current(company: Company, tablets: list[TabletId]) -> bool:
    (reply,) = only(company.read(AreCurrent(table="readings", digest=tablets_digest(tablets))), Reply)
    assert isinstance(reply.body, Currency)
    return reply.body.current


def served(company: Company) -> list[TabletId]:
    """The tablets that a client would know who asks now."""
    (reply,) = only(company.read(GetTable(table="readings")), Reply)
    assert isinstance(reply.body, TableDescription)
    return [tablet.tablet_id for tablet in location_of(reply.body).tablets]


def test_all_tablets_are_current_in_any_order_and_neither_fewer_nor_others_are() -> None:
    company, tablets = led()
    assert current(company, tablets) and current(company, tablets[::-1])
    assert not current(company, tablets[1:]) and not current(company, [*tablets, TabletId("other")])
    assert sorted(served(company)) == sorted(tablets)
    assert refusals(company.read(AreCurrent(table="nothing", digest=1))) == ["NO_TABLE"]


def test_a_range_counts_once_all_of_its_tablets_run_and_no_more_when_it_is_dropped() -> None:
    company, tablets = led()
    company.ask(AlterTable(table="readings", steps=(DropRange(range=LAST),)), 2)
    company.commit()
    left = [t.tablet_id for t in company.core.catalog.tablets.values() if not t.terminal]
    assert len(left) == 2 and current(company, left) and not current(company, tablets)
    company.ask(AlterTable(table="readings", steps=(AddRange(range=LAST),)), 3)
    company.commit()
    states = [t.state for t in company.core.catalog.tablets.values() if not t.terminal]
    assert states.count(TabletState.RUNNING) == 2 and len(states) == 4
    assert current(company, left) and sorted(served(company)) == sorted(left)
