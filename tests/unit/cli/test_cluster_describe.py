"""The map of a cluster: replicas that do not answer, are missing, or have an unusual role; masters without a leader."""

from __future__ import annotations

import msgspec
import pytest

from stelae.check.cluster_state import ClusterState
from stelae.cli.run_cluster_describe import describe_cluster, print_map
from stelae.protocol.catalog_names import TableId, TableState
from stelae.protocol.master_messages import TableSummary
from stelae.rows.plain_schema import schema_from_plain
from tests.unit.check.test_findings import A, B, C, M, T, cluster, report, said

SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})


def described(state: ClusterState) -> ClusterState:
    """The state, with tables that have a schema."""
    tables = tuple(msgspec.structs.replace(table, schema=SCHEMA.to_bytes()) for table in state.tables)
    return msgspec.structs.replace(state, tables=tables)


def test_each_replica_has_its_role_its_state_and_its_size_and_the_leader_comes_first() -> None:
    plain = describe_cluster(described(cluster()))
    assert (plain["cluster_id"], plain["problem"]) == ("c", "")
    assert [master["role"] for master in plain["masters"]] == ["LEADER"]
    assert [(server["node_id"], server["leaders"]) for server in plain["servers"]] == [(A, 1), (B, 0), (C, 0)]
    (table,) = plain["tables"]
    (tablet,) = table["tablets"]
    assert table["size_bytes"] == tablet["size_bytes"] == 10
    assert [(one["node_id"], one["role"], one["state"]) for one in tablet["replicas"]] == [
        (A, "LEADER", "RUNNING"),
        (B, "FOLLOWER", "RUNNING"),
        (C, "FOLLOWER", "RUNNING"),
    ]


def test_a_server_that_is_silent_a_replica_that_is_missing_and_one_that_failed_are_told_apart() -> None:
    failed = msgspec.structs.replace(report(A), state="FAILED", role="NON_PARTICIPANT")
    silent = msgspec.structs.replace(said(B), problem="does not answer: no", reports={}, info=None)
    state = cluster(said(A, reports={T: failed}), silent, said(C, reports={}))
    (table,) = describe_cluster(described(state))["tables"]
    states = {one["node_id"]: one["state"] for one in table["tablets"][0]["replicas"]}
    assert states == {A: "FAILED", B: "SILENT", C: "MISSING"}


def test_the_text_has_what_is_unusual_behind_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    learner = msgspec.structs.replace(report(B), role="LEARNER")
    dropped = TableSummary(table_id=TableId("2" * 32), name="old", state=TableState.SOFT_DELETED)
    state = cluster(said(B, reports={T: learner}), said(C, reports={}))
    state = msgspec.structs.replace(state, summaries=(*state.summaries, dropped))
    print_map(describe_cluster(described(state)), brief=False)
    text = capsys.readouterr().out
    assert "1 master, 3 tablet servers, 1 table, 1 tablet" in text
    assert "a:1     b:1 learner, c:1 MISSING" in text
    assert "old: SOFT_DELETED" in text
    print_map(describe_cluster(described(state)), brief=True)
    assert "b:1 learner" not in capsys.readouterr().out


def test_masters_without_a_leader_are_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    state = ClusterState(masters=((M, "f:1"),), nodes={M: said(M, "master", reports={})}, problem="no master leads")
    plain = describe_cluster(state)
    assert (plain["servers"], plain["tables"], plain["problem"]) == ([], [], "no master leads")
    print_map(plain, brief=False)
    assert "leading master  none" in capsys.readouterr().out
