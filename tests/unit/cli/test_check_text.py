"""What ``stelae check`` prints: a matrix where replicas disagree, and not one for every tablet of a dead server."""

from __future__ import annotations

import msgspec
import pytest

from stelae.check.cluster_check import CheckReport, NodeCheck
from stelae.check.health import ReplicaHealth, TableHealth, TabletHealth, TabletVerdict
from stelae.cli.run_check import MATRICES_MAX, print_checkup
from stelae.protocol.catalog_names import TableId, TableState
from stelae.spi.ids import NodeId, TabletId

A, B, C = (NodeId(letter * 32) for letter in "abc")


def tablet(name: str, verdict: TabletVerdict, *leaders: NodeId | None) -> TabletHealth:
    """A tablet on three servers; a replica without a leader is one that does not answer."""
    replicas = tuple(
        ReplicaHealth(node_id=node, address=f"{node[0]}:1", problem="does not answer: nobody answers")
        if leader is None
        else ReplicaHealth(node_id=node, address=f"{node[0]}:1", role="FOLLOWER", term=3, leader=leader, members=(A, B))
        for node, leader in zip((A, B, C), leaders, strict=True)
    )
    return TabletHealth(tablet_id=TabletId(name), verdict=verdict, why="why", replicas=replicas)


def found(*tablets: TabletHealth, masters: TabletVerdict = TabletVerdict.HEALTHY, **changed: object) -> CheckReport:
    table = TableHealth(table_id=TableId("1" * 32), name="people", state=TableState.RUNNING, tablets=tablets)
    nodes = tuple(
        NodeCheck(node_id=node, address=f"{node[0]}:1", role="tserver", version="1.0", silent_ms=100)
        for node in (A, B, C)
    )
    whole = CheckReport(
        masters=tablet("sys-catalog", masters, A, A, A),
        nodes=nodes,
        tables=(table,),
        versions={},
        differences=(),
        checksums={},
        problems=("something",),
        warnings=(),
    )
    return msgspec.structs.replace(whole, **changed)


def printed(checkup: CheckReport, capsys: pytest.CaptureFixture[str]) -> str:
    print_checkup(checkup)
    return capsys.readouterr().out


def test_replicas_that_disagree_are_shown_with_what_each_believes(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(found(tablet("apart", TabletVerdict.CONSENSUS_MISMATCH, A, B, A)), capsys)
    assert "apart: CONSENSUS_MISMATCH" in out
    rows = [line.split() for line in out.partition("MEMBERS\n")[2].splitlines()]
    believed = [(row[0], row[2], row[3]) for row in rows[1:4]]
    assert believed == [("A", "3", "A"), ("B", "3", "B"), ("C", "3", "A")]


def test_a_dead_server_brings_no_matrix_for_each_of_its_tablets(capsys: pytest.CaptureFixture[str]) -> None:
    many = [tablet(f"t{number}", TabletVerdict.UNDER_REPLICATED, A, A, None) for number in range(3)]
    out = printed(found(*many), capsys)
    assert "MEMBERS" not in out and "NOT HEALTHY: 1 problem" in out
    assert any(line.split() == ["people", "RUNNING", "3", "3", "no", "loss"] for line in out.splitlines())


def test_the_clock_of_each_node_is_shown_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Only ``--json`` had it, and without its error."""
    ahead = NodeCheck(node_id=A, address="a:1", role="master", version="1.0", clock_ahead_ms=12, clock_error_ms=3)
    behind = msgspec.structs.replace(ahead, address="b:1", role="tserver", clock_ahead_ms=-3_600_000)
    unknown = NodeCheck(node_id=C, address="c:1", role="tserver", version="")
    lines = printed(found(nodes=(ahead, behind, unknown)), capsys).splitlines()
    (at,) = [line.index("CLOCK") for line in lines if "CLOCK" in line]
    shown = [line[at:].split("  ")[0] for line in lines for address in ("a:1", "b:1", "c:1") if f" {address} " in line]
    assert shown == ["+12 ms ±3", "-3600000 ms ±3", "-"]


def test_matrices_have_a_limit_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    many = [tablet(f"t{number}", TabletVerdict.UNAVAILABLE, None, None, None) for number in range(MATRICES_MAX + 1)]
    out = printed(found(*many), capsys)
    assert out.count("MEMBERS") == MATRICES_MAX and "and 1 more tablet; stelae check --json shows all of them" in out
