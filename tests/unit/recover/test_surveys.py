"""What surveys of masters and servers take into a plan, and what they leave out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.cli.recover_text import print_plan
from stelae.partition.schema import UNBOUNDED, Partition, PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.codec import encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription, TableList, TableSummary, TabletPlace
from stelae.protocol.masters_messages import MASTERS, MastersView
from stelae.protocol.recovery_messages import (
    CATALOG_FACTS,
    SURVEY,
    CatalogFactsReply,
    SurveyReply,
    SurvivorView,
    TabletFacts,
)
from stelae.recover.catalog_rebuild import survey_catalog
from stelae.recover.plan import RecoveryPlan
from stelae.recover.survey import Survey, survey_masters, survey_servers, survey_system_tablet
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")
TABLET = TabletId("t")


def address(node: NodeId) -> str:
    return f"{node[0]}:1"


def config(*nodes: NodeId, op_id: OpId) -> TabletConfig:
    return TabletConfig(op_id=op_id, members=tuple(Member(node_id=node, address=address(node)) for node in nodes))


class Servers:
    """A connection to servers: each answers a survey with its views. The others are down."""

    def __init__(self, views: dict[NodeId, tuple[SurvivorView, ...]]) -> None:
        self.views = views

    async def reach(self, place: str, **_: object) -> NodeId:
        found = next((node for node in self.views if address(node) == place), None)
        if found is None:
            raise StelaeError("no answer")
        return found

    async def ask(self, node: NodeId, kind: str, body: bytes, **_: object) -> SimpleNamespace:
        assert kind == SURVEY
        return SimpleNamespace(body=[encode(SurveyReply(self.views[node]))])


class RecordKeepers(Servers):
    """Servers whose replicas have these facts on record."""

    def __init__(self, facts: dict[NodeId, tuple[TabletFacts, ...]]) -> None:
        super().__init__(dict.fromkeys(facts, ()))
        self.facts = facts

    async def ask(self, node: NodeId, kind: str, body: bytes, **_: object) -> SimpleNamespace:
        if kind == MASTERS:
            return SimpleNamespace(body=[encode(MastersView(node_id=A, config=None, leader=None))])
        assert kind == CATALOG_FACTS
        return SimpleNamespace(body=[encode(CatalogFactsReply(self.facts[node], more=False))])


def described(table: str, *tablets: TabletPlace, state: TableState = TableState.RUNNING) -> TableDescription:
    return TableDescription(
        table_id=TableId(table),
        name=table,
        state=state,
        schema=b"",
        partition_schema=PartitionSchema().to_bytes(),
        replication_factor=3,
        tablets=tablets,
    )


class Catalog:
    """A client of masters that know these tables."""

    def __init__(self, *tables: TableDescription) -> None:
        self.tables = {table.table_id: table for table in tables}

    async def masters_view(self, **_: object) -> MastersView:
        return MastersView(node_id=A, config=None, leader=None)

    async def list_servers(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(servers=())

    async def list_tables(self, *, soft_deleted: bool = False, **_: object) -> TableList:
        shown = [t for t in self.tables.values() if soft_deleted or t.state is not TableState.SOFT_DELETED]
        return TableList(tables=tuple(TableSummary(table_id=t.table_id, name=t.name, state=t.state) for t in shown))

    async def get_table(self, name: str, **_: object) -> TableDescription:
        return self.tables[TableId(name)]


def surveyed(connection: Any, catalog: Any) -> Survey:
    return asyncio.run(survey_masters(connection, catalog))


def test_masters_that_know_an_older_config_than_the_survivors_make_no_majority() -> None:
    place = TabletPlace(
        tablet_id=TABLET,
        state=TabletState.RUNNING,
        partition=Partition((), UNBOUNDED),
        members=tuple((node, address(node)) for node in (A, B, C, D)),
        learners=(D,),
        config=OpId(2, 30),
    )
    promoted = config(A, B, C, D, op_id=OpId(2, 35))
    view = SurvivorView(tablet_id=TABLET, state="CONFIGURING", term=2, last=OpId(2, 35), config=promoted)
    survey = surveyed(Servers({B: (view,), C: (view,)}), Catalog(described("readings", place)))
    plan, left_alone = survey.plan(7, 0)
    assert [tablet.survivor.node_id for tablet in plan.tablets] == [C] and left_alone == []


def test_a_dropped_table_that_the_catalog_can_recall_is_not_offered_for_adoption() -> None:
    """The masters would refuse it: they have its id."""
    dropped, lost = described("d" * 32, state=TableState.SOFT_DELETED), TableId("e" * 32)
    found = tuple(
        TabletFacts(tablet_id=TabletId(f"of-{table[0]}"), table_id=table, leads=True)
        for table in (dropped.table_id, lost)
    )
    connection: Any = RecordKeepers({A: found})
    catalog: Any = Catalog(dropped)
    survey = asyncio.run(survey_catalog(connection, catalog, [address(A)], timeout_s=0.0))
    assert [facts.table_id for facts in survey.replicas] == [lost]


def test_given_addresses_at_which_no_node_answers_are_told() -> None:
    """The tablet "t" has its majority. What only D has is not known, so nothing says that all is well."""
    three = config(A, B, C, op_id=OpId(1, 1))
    view = SurvivorView(tablet_id=TABLET, state="RUNNING", term=1, last=OpId(1, 9), config=three)
    connection: Any = Servers({A: (view,), B: (view,)})
    survey = asyncio.run(survey_servers(connection, [address(A), address(B), address(D)]))
    plan, left_alone = survey.plan(7, 0)
    assert (plan.tablets, plan.unrecoverable) == ((), ()) and len(left_alone) == 1
    assert survey.silent == {address(D): "no answer"}
    assert asyncio.run(survey_system_tablet(Servers({}), [address(D)])).silent == {address(D): "no answer"}  # type: ignore[arg-type]


def test_a_plan_without_tablets_does_not_say_that_all_is_well_while_a_node_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing = RecoveryPlan(made_us=0, tablets=())
    print_plan(nothing, {address(D): "no answer"})
    said = capsys.readouterr().err
    assert f"node {address(D)} does not answer, so a tablet that only silent nodes have is not here: no answer" in said
    assert "every tablet of the nodes that answer has its majority" in said
    print_plan(nothing)
    assert "every tablet has its majority; there is nothing to recover" in capsys.readouterr().err


def test_a_table_that_is_dropped_during_the_survey_is_left_out_unless_it_was_named() -> None:
    """The survey of all the other tables failed: there is no such table."""

    class Dropping(Catalog):
        async def get_table(self, name: str, **_: object) -> TableDescription:
            if name == "gone":
                raise NoTable(name, ())
            return await super().get_table(name)

    catalog: Any = Dropping(described("gone"), described("kept"))
    connection: Any = Servers({})
    assert [t.table for t in surveyed(connection, catalog).tablets] == []
    with pytest.raises(NoTable):
        asyncio.run(survey_masters(connection, catalog, table="gone"))


def test_masters_that_no_one_leads_lead_to_their_own_recovery() -> None:
    """The error was that of a request that no master serves, without the step that comes first."""

    async def list_servers(**_: object) -> None:
        raise Unavailable("no node could serve master.read in time")

    catalog: Any = SimpleNamespace(list_servers=list_servers)
    connection: Any = None
    with pytest.raises(Unavailable, match=r"in time; .* stelae recover plan --masters HOST:PORT,\.\.\."):
        asyncio.run(survey_masters(connection, catalog))
