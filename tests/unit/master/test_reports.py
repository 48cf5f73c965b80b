"""Which reports count: the newest of each server, the latest term, the highest config."""

from __future__ import annotations

import itertools

import pytest

from stelae.partition.schema import Partition
from stelae.protocol.catalog_names import TableId, TabletState
from stelae.protocol.master_heartbeats import Heartbeat, ReplicaStatus, ReportedDataState, ServerReport
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.reconcile import ClusterView, _newest_config
from stelae.server.master.core.records import TabletRecord
from stelae.server.master.core.servers import Liveness, Servers
from stelae.server.master.settings import MasterSettings
from stelae.spi.consensus import Role
from stelae.spi.ids import ZERO, IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig

TABLET = TabletId("t" * 32)
NODES = tuple(NodeId(f"{n:032x}") for n in range(1, 4))
SETTINGS = MasterSettings()


def status(term: int, *, role: Role = Role.FOLLOWER, config: TabletConfig | None = None) -> ReplicaStatus:
    return ReplicaStatus(tablet_id=TABLET, data_state=ReportedDataState.READY, role=role, term=term, config=config)


def heartbeat(node: NodeId, run: int, sequence: int, *replicas: ReplicaStatus, full: bool = True) -> Heartbeat:
    report = ServerReport(full=full, since=0, upto=sequence, replicas=replicas) if replicas else None
    incarnation = IncarnationId(f"{run:016x}")
    return Heartbeat(node_id=node, incarnation=incarnation, sequence=sequence, address="a:1", report=report)


def hear(servers: Servers, said: Heartbeat, now_us: int = 0) -> bool:
    """As the core takes a heartbeat."""
    taken = servers.heard(said, now_us)
    if taken:
        servers.take(said.node_id, said.report)
    return taken


def view(servers: Servers, now_us: int = 0) -> ClusterView:
    return ClusterView(catalog=Catalog.empty(), servers=servers, settings=SETTINGS, now_us=now_us, wall_us=0)


def on_record(op_id: OpId) -> TabletRecord:
    return TabletRecord(
        tablet_id=TABLET,
        table_id=TableId("1" * 32),
        state=TabletState.RUNNING,
        partition=Partition(),
        since_us=0,
        config=TabletConfig(op_id=op_id, members=()),
    )


@pytest.mark.parametrize("terms", [*itertools.permutations((3, 4, 5))])
def test_of_several_that_claim_to_lead_the_one_of_the_latest_term_counts_whatever_its_id(
    terms: tuple[int, ...],
) -> None:
    servers = Servers(SETTINGS, 0)
    for node, term in zip(NODES, terms, strict=True):
        hear(servers, heartbeat(node, 1, 1, status(term, role=Role.LEADER)))
    leader = view(servers).leader_of(TABLET)
    assert leader is not None
    assert leader[0] == NODES[terms.index(5)] and leader[1].term == 5


def test_a_claim_of_a_server_that_is_dead_does_not_count() -> None:
    servers = Servers(SETTINGS, 0)
    now_us = (SETTINGS.server_dead_ms + 1) * 1000
    hear(servers, heartbeat(NODES[2], 1, 1, status(9, role=Role.LEADER)))
    hear(servers, heartbeat(NODES[0], 1, 1, status(3, role=Role.LEADER)), now_us)
    assert servers.liveness(NODES[2], now_us) is Liveness.DEAD
    leader = view(servers, now_us).leader_of(TABLET)
    assert leader is not None and leader[0] == NODES[0]


@pytest.mark.parametrize("order", [*itertools.permutations((OpId(2, 9), OpId(3, 4), OpId(3, 5)))])
def test_the_config_of_the_highest_op_id_counts_whoever_reports_it(order: tuple[OpId, ...]) -> None:
    servers = Servers(SETTINGS, 0)
    for term, (node, op_id) in enumerate(zip(NODES, order, strict=True)):
        hear(servers, heartbeat(node, 1, 1, status(term, config=TabletConfig(op_id=op_id, members=()))))
    tablet = on_record(ZERO)
    assert _newest_config(view(servers), tablet).op_id == OpId(3, 5)
    assert _newest_config(view(servers), on_record(OpId(4, 6))).op_id == OpId(4, 6)


def test_a_heartbeat_that_was_overtaken_changes_nothing() -> None:
    servers = Servers(SETTINGS, 0)
    assert hear(servers, heartbeat(NODES[0], 1, 2, status(5)))
    assert not hear(servers, heartbeat(NODES[0], 1, 1, status(4, role=Role.LEADER)))
    assert servers.holding(TABLET) == ((NODES[0], status(5)),)


def test_a_heartbeat_of_a_former_run_changes_nothing_however_many_runs_there_were() -> None:
    servers = Servers(SETTINGS, 0)
    for run in range(1, 9):
        assert hear(servers, heartbeat(NODES[0], run, 1, status(run)))
    for run in range(1, 8):
        assert not hear(servers, heartbeat(NODES[0], run, 99, status(run, role=Role.LEADER)), now_us=7)
    assert servers.holding(TABLET) == ((NODES[0], status(8)),)
    server = servers.get(NODES[0])
    assert server is not None and server.heard_us == 0, "a process that is gone does not keep its server alive"


def test_a_master_that_never_heard_of_the_former_run_does_not_take_it_for_a_restart() -> None:
    """Found by the simulator, with heartbeats that a restart overtakes: a master that had started meanwhile heard the
    new run first, then the former one, and refused the new one from then on: its server was dead for it."""
    servers = Servers(SETTINGS, 0)
    assert hear(servers, heartbeat(NODES[0], 2, 1, status(2)))
    assert not hear(servers, heartbeat(NODES[0], 1, 50, status(1)))
    assert hear(servers, heartbeat(NODES[0], 2, 2, status(3)), now_us=5)
    assert servers.holding(TABLET) == ((NODES[0], status(3)),)
