"""``stelae policy`` as a user runs it: exit code, output, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stelae.cli.policy_explain import unmet_needs
from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId
from stelae.testing.conformance.policy_model import node_name
from tests.unit.cli.test_commands import document, run
from tests.unit.placement_policy.clusters import ModelCluster, NodeHealth, cluster


def written(model: ModelCluster, tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_bytes(msgspec.json.encode(model.snapshot()))
    return str(path)


@pytest.fixture
def ailing() -> ModelCluster:
    """A lost replica, a tablet to be placed, one without a majority, and one that is well."""
    model = cluster("/d/r1/h1", "/d/r2/h2", "/d/r3/h3", "/d/r1/h4", "/d/r2/h5")
    model.create("lost", (1, 2, 3))
    model.create("new", factor=3)
    model.create("down", (1, 5), factor=3)
    model.create("well", (2, 3, 4))
    model.set_health(1, NodeHealth.DEAD)
    return model


def test_explain_says_what_and_why_and_what_the_others_wait_for(ailing: ModelCluster, tmp_path: Path) -> None:
    done = run("policy", "explain", written(ailing, tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    head, table, waits = (part.splitlines() for part in done.stdout.split("\n\n"))
    assert head[0].split(maxsplit=1) == ["planned", "1 ADD, 3 PLACE, 1 TRANSFER"]
    assert len(head) == 1, "masters carry out all of them"
    assert table[0].split() == ["KIND", "TABLET", "NODE", "REASON"]
    assert [line.split()[:2] for line in table[1:4]] == [["PLACE", "new"]] * 3
    assert table[4].split()[:3] == ["ADD", "lost", node_name(4)]
    assert "00000000 (/d/r1/h1) is DEAD" in table[4]
    assert [line.split()[:2] for line in table[5:]] == [["TRANSFER", "well"]]
    assert waits[-1].split(maxsplit=1) == ["down", "a majority: 1 of 2 voters are healthy"]


def test_a_plan_fits_the_terminal_and_tells_tablets_apart_by_the_beginning_of_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines had 91 columns at best, and 200 with additions."""
    model = cluster("/d/r1/h1", "/d/r2/h2", "/d/r3/h3", "/d/r1/h4")
    for number in range(4):
        model.create(f"{number}" * 32, (1, 2, 3))
    model.set_health(1, NodeHealth.DEAD)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("policy", "explain", written(model, tmp_path)).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"00000000", "11111111"} <= {line.split()[1] for line in lines if line.startswith("ADD")}
    found = document(run("policy", "explain", written(model, tmp_path), "--tablet", "1111", "--json"))
    assert {action["tablet_id"] for action in found["actions"]} == {"1" * 32}
    assert "no tablet 'none'" in run("policy", "explain", written(model, tmp_path), "--tablet", "none").stderr


def test_where_there_is_no_server_for_a_replica_it_is_said_and_what_to_do(tmp_path: Path) -> None:
    """It began "nothing is to be changed" with every tablet under-replicated."""
    model = cluster("", "", "")
    model.create("t", (1, 2, 3))
    model.create("u", (1, 2, 3))
    model.set_health(3, NodeHealth.DEAD)
    for tablet in ("t", "u"):
        led = [msgspec.structs.replace(r, role=Role.FOLLOWER) for r in model.tablets[TabletId(tablet)].replicas[1:]]
        first = msgspec.structs.replace(model.tablets[TabletId(tablet)].replicas[0], role=Role.LEADER)
        model.change(tablet, replicas=(first, *led))
    said = run("policy", "explain", written(model, tmp_path)).stdout
    assert said.split("\n")[0].split() == ["planned", "nothing"]
    assert "2 tablets need another server for a replica, and no server can take it" in said
    assert "(1 server of 3 dead); start" in said and "again, or add a tablet server" in said


def test_a_retirement_without_a_server_for_its_replicas_is_explained(tmp_path: Path) -> None:
    """It said "planned nothing" and no more, and `stelae tserver retire --wait` sent people here."""
    model = cluster("", "", "")
    model.create("t", (1, 2, 3))
    first, *others = model.tablets[TabletId("t")].replicas
    led = [msgspec.structs.replace(r, role=Role.FOLLOWER) for r in others]
    model.change("t", replicas=(msgspec.structs.replace(first, role=Role.LEADER), *led))
    assert "WAITS FOR" not in run("policy", "explain", written(model, tmp_path)).stdout
    model.set_health(3, NodeHealth.RETIRING)
    said = run("policy", "explain", written(model, tmp_path)).stdout
    assert "1 tablet needs another server for a replica, and no server can take it" in said
    assert "a server that can take the replica of one that retires" in said


def test_explain_prints_one_json_document(ailing: ModelCluster, tmp_path: Path) -> None:
    done = run("policy", "explain", written(ailing, tmp_path), "--json", "--limit", "1")
    found = document(done)
    assert found["counts"] == {"PLACE": 3, "ADD": 1, "TRANSFER": 1}
    assert len(found["actions"]) == 1
    assert found["actions"][0] | {"node_id": "", "reason": ""} == {
        "kind": "PLACE",
        "tablet_id": "new",
        "node_id": "",
        "cas": "0.0",
        "reason": "",
        "member_type": None,
    }
    assert list(found["waiting"]) == ["down"]


def test_explain_of_one_tablet(ailing: ModelCluster, tmp_path: Path) -> None:
    found = document(run("policy", "explain", written(ailing, tmp_path), "--tablet", "lost", "--json"))
    assert [action["tablet_id"] for action in found["actions"]] == ["lost"]
    assert found["waiting"] == {}


def test_explain_of_a_cluster_at_rest(tmp_path: Path) -> None:
    model = cluster("/d/r1/h1", "/d/r2/h2", "/d/r3/h3")
    model.create("t", (1, 2, 3))
    done = run("policy", "explain", written(model, tmp_path))
    assert (done.returncode, done.stdout) == (0, "planned  nothing\n")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (None, ": No such file or directory"),
        ("{", "is not a snapshot of a cluster"),
        ('{"now_us": 1, "nodes": {}, "tablets": {"t": {"tablet_id": "t"}}}', "replication_factor"),
        (
            '{"now_us": 1, "nodes": {"a": {"node_id": "b", "health": "LIVE"}}, "tablets": {}}',
            "the node under 'a' has the id 'b'",
        ),
        ('{"now_us": 1, "nodes": {"a": {"node_id": "a", "health": "ILL"}}, "tablets": {}}', "ILL"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_with_the_reason(text: str | None, fact: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    if text is not None:
        path.write_text(text)
    done = run("policy", "explain", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and fact in done.stderr and str(path) in done.stderr


def test_a_cluster_and_a_file_are_not_both_asked(tmp_path: Path) -> None:
    done = run("policy", "explain", written(cluster(""), tmp_path), "--connect", "127.0.0.1:1")
    assert done.returncode == 2 and "not both" in done.stderr
    none = run("policy", "explain")
    assert none.returncode == 2 and "--connect HOST:PORT of a master, or --dir DIR" in none.stderr


def test_an_unknown_policy_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    done = run("policy", "explain", written(cluster(""), tmp_path), "--policy", "chaos")
    assert done.returncode == 2
    assert "known policy engines: placement" in done.stderr


def test_simulate_shows_spread_and_plans_of_every_phase() -> None:
    words = ("policy", "simulate", "--servers", "12", "--tablets", "60", "--seed", "1", "--plans", "3")
    done = run(*words)
    assert done.returncode == 0
    heads = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert [head.split(":")[0] for head in heads] == [
        "== 60 tablets are created",
        "== tablets have grown",
        "== a server is dead",
        "== 1 empty servers join",
        "== a server retires",
    ]
    assert "180 PLACE" in done.stdout
    assert done.stdout.count("LOCATION") == 5


def test_simulate_gives_the_same_figures_for_the_same_seed() -> None:
    def figures(seed: str) -> Any:
        words = ("policy", "simulate", "--servers", "12", "--tablets", "60", "--seed", seed, "--plans", "3", "--json")
        phases = document(run(*words))["phases"]
        return [{name: value for name, value in phase.items() if "seconds" not in name} for phase in phases]

    first = figures("1")
    assert json.dumps(first) == json.dumps(figures("1"))
    assert json.dumps(first) != json.dumps(figures("2"))


def test_what_tablets_wait_for_is_told_apart() -> None:
    model = cluster(*("",) * 4)
    for name in ("leaderless", "pending", "copying", "resting", "moved"):
        model.create(name, (1, 2, 3))
    moved = model.tablets[TabletId("moved")].replicas
    model.change("moved", replicas=(*moved[:2], msgspec.structs.replace(moved[2], replaces=moved[1].node_id)))
    followers = [msgspec.structs.replace(r, role=Role.FOLLOWER) for r in model.tablets[TabletId("leaderless")].replicas]
    model.change("leaderless", replicas=tuple(followers))
    model.change("pending", change_pending=True)
    model.change("copying", replication_factor=5)
    model.create("unplaced", factor=5)
    found = unmet_needs(model.snapshot(), ())
    assert found == {
        "leaderless": "a leader",
        "pending": "a pending change of its members",
        "copying": "a server that can take a replica: it has 3 of 5 voters",
        "unplaced": "5 servers that can take it",
        "moved": "a server that can take a replica: it has 2 of 3 voters",
    }
    model.set_health(4, NodeHealth.MAINTENANCE)
    model.create("kept", (1, 2, 4))
    model.set_health(4, NodeHealth.MAINTENANCE)
    assert unmet_needs(model.snapshot(), ())["kept"] == "1 server in maintenance or briefly silent"
