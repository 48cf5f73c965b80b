"""``stelae cluster`` and ``stelae table``: a cluster of real processes, from an empty folder to a dropped table."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from stelae.cli.kit.errors import exit_code
from stelae.cli.main import build_app
from stelae.client import connect
from stelae.spi.errors import StelaeError
from stelae.telemetry.catalog import FAMILIES, PREFIX
from tests.e2e import in_process

CHANGED = """
[tserver]
location = "/oslo/rack-1"

[maintenance]
history_retention_s = 1000

[quarantine]
bytes_max = 0
interval_ms = 50
"""

RUN_S = 120
"""Longest that any command may take; reached only by a defect."""


def process(*words: str, expect: int = 0) -> str:
    """Run a command with an interpreter of its own, and return what it prints."""
    command = [sys.executable, "-m", "stelae", *words]
    # Not what the library that edits lines has put into the environment of the process: COLUMNS, for one.
    environment = dict(os.environ)
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=environment)
    assert expect == done.returncode, f"{' '.join(words)}: {done.stdout}\n{done.stderr}"
    return done.stdout


def stelae(*words: str, expect: int = 0) -> in_process.Done:
    """Run a command here: what one more interpreter loads, this one has loaded."""
    done = in_process.stelae(*words)
    assert expect == done.exit_code, f"{' '.join(words)}: {done.stdout}\n{done.stderr}"
    return done


def answer(*words: str, expect: int = 0) -> Any:
    return json.loads(stelae(*words, "--json", expect=expect).stdout)


def until_given_up() -> Iterator[None]:
    """Turns of a wait, with a rest after each, for ``RUN_S``."""
    deadline = time.monotonic() + RUN_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)


def look(*words: str) -> Any:
    """What a command that only looks answers: in this process, which has loaded all that a new one would have to."""
    return json.loads(printed(*words, "--json"))


def printed(*words: str) -> str:
    """What it prints for people; its errors are raised."""
    done = CliRunner().invoke(build_app(words[0]), [*words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running cluster of one master and three tablet servers."""
    directory = str(tmp_path_factory.mktemp("commands") / "cluster")
    process("cluster", "up", directory, "--masters", "1")
    try:
        yield directory
    finally:
        process("cluster", "down", directory)


def test_up_says_where_to_connect_and_status_what_runs(cluster: str) -> None:
    again = json.loads(process("cluster", "up", cluster, "--json"))
    found = json.loads(process("cluster", "status", cluster, "--json"))
    assert found["ok"] and [node["role"] for node in found["nodes"]] == ["master", *["tserver"] * 3]
    assert again["nodes"] == found["nodes"], "what runs is left alone"
    assert found["leader"] == found["nodes"][0]["name"]
    assert again["addresses"] == [found["nodes"][0]["address"]]


def test_status_asks_every_node_and_a_process_that_is_stopped_is_silent(cluster: str) -> None:
    """It looked at processes alone, and said that all was well."""
    stopped = answer("cluster", "status", cluster)["nodes"][2]
    os.kill(stopped["pid"], signal.SIGSTOP)
    try:
        found = answer("cluster", "status", cluster, expect=1)
        shown = stelae("cluster", "status", cluster, expect=1)
    finally:
        os.kill(stopped["pid"], signal.SIGCONT)
    assert not found["ok"]
    assert [node["state"] for node in found["nodes"]] == ["ok", "ok", "silent", "ok"]
    assert found["nodes"][2]["problem"].startswith("does not answer: ")
    assert re.search(rf"{stopped['name']} +{stopped['address']} +{stopped['pid']} +tserver +silent", shown.stdout)
    assert f"{stopped['name']} is silent: does not answer: " in shown.stderr
    process("cluster", "up", cluster)
    assert answer("cluster", "status", cluster)["ok"], "the masters have heard of it again, or this would not be"


def test_a_table_is_created_described_listed_filled_read_and_dropped(cluster: str, tmp_path: Path) -> None:
    made = json.loads(
        process(
            "table",
            "create",
            "readings",
            "--column",
            "sensor:int64",
            "--column",
            "celsius:double",
            "--column",
            "unit:string=C",
            "--key",
            "sensor",
            "--hash",
            "sensor:2",
            "--dir",
            cluster,
            "--json",
        )
    )
    assert [c["name"] for c in made["columns"]] == ["sensor", "celsius", "unit"] and made["key"] == ["sensor"]
    assert [c["default"] for c in made["columns"]] == [None, None, "C"]
    assert [(t["state"], len(t["members"]), t["leader"] in t["members"]) for t in made["tablets"]] == [
        ("RUNNING", 3, True)
    ] * 2
    assert answer("table", "describe", "readings", "--dir", cluster)["table_id"] == made["table_id"]
    file = tmp_path / "readings.csv"
    file.write_text("sensor,celsius\n1,20.5\n2,\n")
    process("import", str(file), "--table", "readings", "--dir", cluster)
    assert answer("get", "2", "--table", "readings", "--dir", cluster)["row"]["unit"] == "C"
    guessed = stelae("import", str(file), "--table", "fresh", "--dir", cluster, expect=2)
    assert "pass its key with --key to create it" in guessed.stderr and "the key is a guess" in guessed.stderr
    into_fresh = ("import", str(file), "--table", "fresh", "--key", "sensor", "--dir", cluster)
    stelae(*into_fresh, "--dry-run")
    stelae(*into_fresh, "--mode", "delete", expect=2)
    assert [t["name"] for t in look("table", "list", "--dir", cluster)["tables"]] == ["readings"], "none is made so"
    assert "creating table fresh with key sensor" in stelae(*into_fresh).stderr
    assert [t["name"] for t in answer("table", "list", "--dir", cluster)["tables"]] == ["fresh", "readings"]
    assert answer("get", "1", "--table", "fresh", "--dir", cluster)["row"] == {"sensor": 1, "celsius": 20.5}
    answer("table", "drop", "fresh", "--dir", cluster)
    answer("table", "drop", "readings", "--dir", cluster)
    assert answer("table", "list", "--dir", cluster)["tables"] == []


def scrape(address: str) -> dict[str, Any]:
    """The metric families of a node, by name."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{address}/metrics", timeout=RUN_S) as reply:
        return {family.name: family for family in text_string_to_metric_families(reply.read().decode())}


def figure(families: dict[str, Any], name: str, **labels: str) -> float:
    """The sum of a metric's samples that have the labels."""
    samples = next(family.samples for family in families.values() if any(s.name == name for s in family.samples))
    return float(sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items()))


def test_every_node_serves_the_metrics_of_the_reference_and_they_tell_what_has_happened(cluster: str) -> None:
    nodes = answer("cluster", "status", cluster)["nodes"]
    with connect(nodes[0]["address"]) as client:
        table = client.create_table("counted", {"id": "int64"}, "id")
        table.upsert([{"id": number} for number in range(3)])
        assert table.scan().to_arrow().num_rows == 3
        found = {node["name"]: scrape(node["metrics"]) for node in nodes}
        shown = stelae("metrics", "--dir", cluster, "--match", "log_commit").stdout.splitlines()
        client.drop_table("counted")
    for node in nodes:
        wanted = {PREFIX + f.name: f.kind.value for f in FAMILIES if node["role"] == "master" or not f.master}
        served = {name: family.type for name, family in found[node["name"]].items()}
        ours = {name: kind for name, kind in served.items() if name.startswith(PREFIX)}
        assert ours == wanted, "the reference and the node agree, by name and kind"
        assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= set(served)
        assert figure(found[node["name"]], "stelae_node_info", node=node["node_id"], role=node["role"]) == 1
    assert shown[0].split() == ["METRIC", *(node["name"].upper() for node in nodes)]
    assert [line.split()[:2] for line in shown[1:]] == [
        ["stelae_log_commit_duration_seconds", what] for what in ("count", "mean", "p50", "p99")
    ]
    master, *servers = (found[node["name"]] for node in nodes)
    assert figure(master, "stelae_master_leads") == 1 and figure(master, "stelae_master_tables") >= 1
    assert figure(master, "stelae_master_heartbeats_received_total") > 0
    assert figure(master, "stelae_elections_won_total") >= 1 and figure(master, "stelae_term_max") >= 1

    def over_servers(name: str) -> float:
        return sum(figure(server, name) for server in servers)

    assert over_servers("stelae_write_operations_total") >= 1
    assert 1 <= over_servers("stelae_write_duration_seconds_count") <= over_servers("stelae_write_requests_total")
    assert over_servers("stelae_scan_rows_total") >= 3 and over_servers("stelae_scan_page_duration_seconds_sum") > 0
    assert over_servers("stelae_rows_applied_total") >= 3
    majority = sorted(servers, key=lambda server: figure(server, "stelae_log_commit_duration_seconds_count"))[1:]
    for server in majority:
        assert figure(server, "stelae_log_commit_duration_seconds_count") > 0
        assert figure(server, "stelae_log_group_entries_sum") > 0 and figure(server, "stelae_log_group_bytes_sum") > 0
        assert figure(server, "stelae_loop_lag_seconds_count") > 0
        assert figure(server, "stelae_replicas") >= 1 and figure(server, "stelae_heartbeats_sent_total") > 0


def test_check_is_content_with_a_whole_cluster_and_names_what_is_missing_of_a_broken_one(
    cluster: str, tmp_path: Path
) -> None:
    stelae("table", "create", "checked", "--column", "id:int64", "--key", "id", "--dir", cluster)
    found = until_content(cluster, "--checksums")
    assert found["ok"] and not found["problems"]
    (table,) = found["tables"]
    (tablet,) = table["tablets"]
    assert tablet["verdict"] == "HEALTHY" and [r["problem"] for r in tablet["replicas"]] == [""] * 3
    assert set(found["checksums"]) == {tablet["tablet_id"]}
    killed = next(n for n in answer("cluster", "status", cluster)["nodes"] if n["role"] == "tserver")
    os.kill(killed["pid"], signal.SIGKILL)
    broken = answer("check", "--dir", cluster, expect=1)
    assert not broken["ok"] and any(killed["address"] in problem for problem in broken["problems"])
    (tablet,) = broken["tables"][0]["tablets"]
    assert tablet["verdict"] in ("UNDER_REPLICATED", "UNAVAILABLE"), "the latter until the others have elected one"
    snapshot = tmp_path / "cluster.json"
    planned = answer("policy", "explain", "--save", str(snapshot), "--dir", cluster)
    seen = json.loads(snapshot.read_text())
    assert list(seen["tablets"]) == [tablet["tablet_id"]] and len(seen["nodes"]) == 3
    again = answer("policy", "explain", str(snapshot))
    assert (again["actions"], again["waiting"]) == (planned["actions"], planned["waiting"])
    shown = stelae("check", "--dir", cluster, expect=1)
    assert re.search(rf"server +{killed['address']} .* does not answer", shown.stdout), shown.stdout
    assert f"problem: tablet server {killed['address']}: does not answer: " in shown.stderr
    assert f"problem: tablet {tablet['tablet_id']} of checked: " in shown.stderr and "NOT HEALTHY" in shown.stdout
    # It comes back with a place, a setting that the others have otherwise, and a quarantine that keeps nothing.
    with Path(cluster, killed["name"], "node.toml").open("a") as config:
        config.write(CHANGED)
    process("cluster", "up", cluster)
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n")
    stelae("import", str(file), "--table", "checked", "--dir", cluster)  # a write tells the one that was away
    healed = until_content(cluster)
    assert healed["ok"], healed["problems"]
    (differing,) = healed["differences"]
    assert (differing["setting"], differing["severity"]) == ("maintenance.history_retention_s", "WARNING")
    assert ["1000", [killed["address"]]] in differing["values"] and healed["warnings"] and healed["ok"]
    assert list(healed["versions"]) == [healed["nodes"][0]["version"]]
    place = {}
    for _ in until_given_up():  # The master has it from its next report.
        place = {one["address"]: one["location"] for one in look("tserver", "list", "--dir", cluster)["servers"]}
        if place[killed["address"]]:
            break
    assert place[killed["address"]] == "/oslo/rack-1"
    stelae("table", "drop", "checked", "--dir", cluster)
    kept = {node["name"]: until_set_aside(cluster, node) for node in answer("cluster", "status", cluster)["nodes"][1:]}
    assert kept.pop(killed["name"]) == [] and all(kept.values()), "limits are those of each node"


NEIGHBOURS = [
    (["table", "describe", "nope"], "no table 'nope'; there are none; list them with: stelae table list"),
    (["tablet", "describe", "nope"], "no tablet 'nope'"),
    (["tablet", "list", "--table", "nope"], "no table 'nope'"),
    (["tserver", "describe", "127.0.0.1:9"], "no tablet server '127.0.0.1:9'; the nearest are: 127.0.0.1:"),
    (["master", "describe", "nobody"], "list them with: stelae master list"),
    (["check", "--table", "nope"], "no table 'nope'"),
]


@pytest.mark.parametrize(("words", "fact"), NEIGHBOURS)
def test_an_unknown_name_is_told_with_its_neighbours_and_the_next_step(
    cluster: str, words: list[str], fact: str
) -> None:
    with pytest.raises(StelaeError, match=re.escape(fact)) as caught:
        look(*words, "--dir", cluster)
    assert exit_code(caught.value) == 2


def until_content(cluster: str, *options: str) -> Any:
    """What ``check`` finds once all that has just been made or started has settled."""
    found = look("check", *options, "--dir", cluster)
    for _ in until_given_up():
        if found["ok"]:
            break
        found = look("check", *options, "--dir", cluster)
    return found


def until_set_aside(cluster: str, node: dict[str, Any]) -> list[str]:
    """What a server has set aside of the table that was dropped, once it has deleted its replicas."""
    place = Path(cluster, node["name"], "data")
    for _ in until_given_up():
        described = look("tserver", "describe", node["address"], "--dir", cluster)
        found = look("tablet", "quarantine", "list", str(place))["quarantine"]
        purges = described["settings"]["quarantine.bytes_max"] == 0
        if not described["replica_list"] and bool(found) is not purges:
            return [one["name"] for one in found]
    return pytest.fail(f"{node['name']} still has {described['replica_list']}, and {found} set aside")


def test_tablets_servers_and_masters_are_listed_and_described_alike_for_people_and_programs(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stelae("table", "create", "seen", "--column", "id:int64", "--key", "id", "--hash", "id:2", "--dir", cluster)
    file = tmp_path / "rows.csv"
    file.write_text("id\n" + "".join(f"{row}\n" for row in range(5000)))
    stelae("import", str(file), "--table", "seen", "--dir", cluster)
    assert until_content(cluster)["ok"]
    tablets: list[Any] = []
    servers: list[Any] = []
    for _ in until_given_up():  # Who leads the master has from the servers' next reports.
        tablets = look("tablet", "list", "--table", "seen", "--dir", cluster)["tablets"]
        servers = look("tserver", "list", "--dir", cluster)["servers"]
        if all(tablet["leader"] for tablet in tablets) and sum(server["leaders"] for server in servers) == 2:
            break
    (master,) = look("master", "list", "--dir", cluster)["masters"]
    addresses = {server["address"] for server in servers}
    for number, tablet in enumerate(tablets):
        assert (tablet["health"], tablet["table"]) == ("HEALTHY", "seen") and tablet["leader"] in addresses
        assert tablet["partition"] == f"bucket {number} of 2 by id"
        assert sorted(r["role"] for r in tablet["replicas"]) == ["FOLLOWER", "FOLLOWER", "LEADER"]
        assert all(r["version"] and r["silent_ms"] < 60_000 for r in tablet["replicas"])
    assert sum(server["leaders"] for server in servers) == 2 and [s["replicas"] for s in servers] == [2, 2, 2]
    assert (master["role"], master["problem"]) == ("LEADER", "")
    shown = [look("tablet", "describe", t["tablet_id"][:12], "--rows", "--dir", cluster) for t in tablets]
    assert sum(tablet["rows"] for tablet in shown) == 5000
    server = look("tserver", "describe", servers[0]["address"], "--dir", cluster)
    for node in answer("cluster", "status", cluster)["nodes"]:  # By the names that are shown there, too.
        assert look(node["role"], "describe", node["name"], "--dir", cluster)["node_id"] == node["node_id"]
    assert "no master 'tserver-1'" in stelae("master", "describe", "tserver-1", "--dir", cluster, expect=2).stderr
    assert {one["tablet_id"] for one in server["replica_list"]} == {t["tablet_id"] for t in tablets}
    assert server["settings"]["engines.consensus"] == "raft" and all(peer["connected"] for peer in server["peers"])
    assert look("master", "describe", master["node_id"][:8], "--dir", cluster)["cluster_id"] == server["cluster_id"]
    by_server = look("master", "list", "--connect", server["address"])["masters"]
    assert [one["address"] for one in by_server] == [master["address"]], "tablet servers know the masters"
    whole = look("cluster", "describe", "--dir", cluster)
    assert (whole["cluster_id"], whole["problem"]) == (server["cluster_id"], "")
    assert [m["node_id"] for m in whole["masters"]] == [master["node_id"]]
    assert [s["node_id"] for s in whole["servers"]] == [s["node_id"] for s in servers]
    (table,) = whole["tables"]
    assert (table["name"], len(table["tablets"])) == ("seen", 2) and table["size_bytes"] is not None
    for tablet, other in zip(table["tablets"], tablets, strict=True):
        assert tablet["tablet_id"] == other["tablet_id"] and tablet["replicas"][0]["address"] == tablet["leader"]
        assert {(r["role"], r["state"]) for r in tablet["replicas"]} == {("LEADER", "RUNNING"), ("FOLLOWER", "RUNNING")}
    monkeypatch.setenv("COLUMNS", "80")
    for words in (
        ["table", "list"],
        ["table", "describe", "seen"],
        ["tablet", "list"],
        ["tablet", "describe", tablets[0]["tablet_id"]],
        ["tserver", "list"],
        ["tserver", "describe", servers[0]["node_id"], "--settings"],
        ["master", "list"],
        ["master", "describe", master["address"]],
        ["cluster", "describe"],
        ["check"],
    ):
        shown_to_people = printed(*words, "--dir", cluster)
        assert shown_to_people and max(map(len, shown_to_people.splitlines())) <= 80, words
    stelae("table", "drop", "seen", "--dir", cluster)


def test_a_table_gets_more_and_fewer_replicas_and_the_command_waits_until_all_tablets_have_them(cluster: str) -> None:
    key = ["--column", "id:int64", "--key", "id", "--hash", "id:2"]
    stelae("table", "create", "grown", *key, "--replicas", "1", "--dir", cluster)
    for count in ("3", "1"):
        changed = answer("table", "alter", "grown", "--replicas", count, "--wait", "--dir", cluster)
        assert [str(len(one["members"])) for one in changed["tablets"]] == [count] * 2
        again = stelae("table", "alter", "grown", "--replicas", count, "--wait", "--dir", cluster)
        assert f"grown: 2 of 2 tablets with {count} replica" in again.stderr
    refused = stelae("table", "alter", "grown", "--replicas", "3", "--wait-s", "5", "--dir", cluster, expect=2)
    assert "--wait-s needs --wait" in refused.stderr
    stelae("table", "drop", "grown", "--dir", cluster)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["table", "drop", "nope"], "no table 'nope'; there are: none"),
        (["table", "create", "x", "--column", "id", "--key", "id"], "--column takes NAME:TYPE"),
        (["table", "create", "x", "--column", "id:int", "--key", "id"], "unknown column type 'int'"),
        (["table", "create", "x", "--column", "id:int64", "--key", "ident"], "is not a column; the columns are: id"),
        (["table", "create", "x", "--column", "id:int64", "--key", "id", "--replicas", "5"], "5"),
        (
            ["table", "create", "x", "--column", "id:int64", "--key", "id", "--replicas", "0"],
            "replicas must be a whole number from 1, not int 0",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_message(cluster: str, words: list[str], fact: str) -> None:
    done = stelae(*words, "--dir", cluster, expect=2)
    assert fact in done.stderr and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_a_folder_without_a_cluster_is_named_with_the_next_step(tmp_path: Path) -> None:
    done = stelae("cluster", "status", str(tmp_path), expect=2)
    assert "create one with: stelae cluster up" in done.stderr
    (tmp_path / "something").touch()
    done = stelae("cluster", "up", str(tmp_path), expect=2)
    assert "is not empty" in done.stderr
