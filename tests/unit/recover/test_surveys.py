"""What surveys of masters and servers take into a plan, and what they leave out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from stelae.partition.schema import UNBOUNDED, Partition, PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.codec import encode
from stelae.protocol.master_messages import TableDescription, TableList, TableSummary, TabletPlace
from stelae.protocol.recovery_messages import SURVEY, SurveyReply, SurvivorView
from stelae.recover.survey import Survey, survey_masters
from stelae.spi.errors import StelaeError
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


def described(table: str, *tablets: TabletPlace) -> TableDescription:
    return TableDescription(
        table_id=TableId(table),
        name=table,
        state=TableState.RUNNING,
        schema=b"",
        partition_schema=PartitionSchema().to_bytes(),
        replication_factor=3,
        tablets=tablets,
    )


class Catalog:
    """A client of masters that know these tables."""

    def __init__(self, *tables: TableDescription) -> None:
        self.tables = {table.table_id: table for table in tables}

    async def list_servers(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(servers=())

    async def list_tables(self, **_: object) -> TableList:
        return TableList(
            tables=tuple(TableSummary(table_id=t.table_id, name=t.name, state=t.state) for t in self.tables.values())
        )

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
