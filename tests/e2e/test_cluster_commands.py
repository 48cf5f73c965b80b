"""``stelae cluster`` and ``stelae table``: a cluster of real processes, from an empty folder to a dropped table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RUN_S = 120
"""Longest that any command may take; reached only by a defect."""


def stelae(*words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stelae", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert expect in (None, done.returncode), f"{' '.join(words)}: {done.stdout}\n{done.stderr}"
    return done


def answer(*words: str, expect: int = 0) -> Any:
    return json.loads(stelae(*words, "--json", expect=expect).stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running cluster of one master and three tablet servers."""
    directory = str(tmp_path_factory.mktemp("commands") / "cluster")
    stelae("cluster", "up", directory, "--masters", "1")
    try:
        yield directory
    finally:
        stelae("cluster", "down", directory)


def test_up_says_where_to_connect_and_status_what_runs(cluster: str) -> None:
    again = answer("cluster", "up", cluster)
    found = answer("cluster", "status", cluster)
    assert found["ok"] and [node["role"] for node in found["nodes"]] == ["master", *["tserver"] * 3]
    assert again["nodes"] == found["nodes"], "what runs is left alone"
    assert again["addresses"] == [found["nodes"][0]["address"]]


def test_a_table_is_created_described_listed_filled_read_and_dropped(cluster: str, tmp_path: Path) -> None:
    made = answer(
        "table",
        "create",
        "readings",
        "--column",
        "sensor:int64",
        "--column",
        "celsius:double",
        "--key",
        "sensor",
        "--hash",
        "sensor:2",
        "--dir",
        cluster,
    )
    assert [column["name"] for column in made["columns"]] == ["sensor", "celsius"] and made["key"] == ["sensor"]
    assert [(t["state"], len(t["members"]), t["leader"] in t["members"]) for t in made["tablets"]] == [
        ("RUNNING", 3, True)
    ] * 2
    assert answer("table", "describe", "readings", "--dir", cluster)["table_id"] == made["table_id"]
    file = tmp_path / "readings.csv"
    file.write_text("sensor,celsius\n1,20.5\n2,\n")
    stelae("import", str(file), "--table", "readings", "--dir", cluster)
    stelae("import", str(file), "--table", "fresh", "--key", "sensor", "--dir", cluster)
    assert [t["name"] for t in answer("table", "list", "--dir", cluster)["tables"]] == ["fresh", "readings"]
    assert answer("get", "1", "--table", "fresh", "--dir", cluster)["row"] == {"sensor": 1, "celsius": 20.5}
    answer("table", "drop", "fresh", "--dir", cluster)
    answer("table", "drop", "readings", "--dir", cluster)
    assert answer("table", "list", "--dir", cluster)["tables"] == []


def test_check_is_content_with_a_whole_cluster_and_names_what_is_missing_of_a_broken_one(
    cluster: str, tmp_path: Path
) -> None:
    stelae("table", "create", "checked", "--column", "id:int64", "--key", "id", "--dir", cluster)
    found = answer("check", "--checksums", "--dir", cluster)
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
    printed = stelae("check", "--dir", cluster, expect=1)
    assert "NOT HEALTHY" in printed.stdout and "TERM" in printed.stdout
    stelae("cluster", "up", cluster)
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n")
    stelae("import", str(file), "--table", "checked", "--dir", cluster)  # a write tells the one that was away
    for _ in range(20):
        if stelae("check", "--dir", cluster, expect=None).returncode == 0:
            break
    else:
        pytest.fail("not healthy again")
    stelae("table", "drop", "checked", "--dir", cluster)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["table", "drop", "nope"], "no table 'nope'; there are: none"),
        (["table", "create", "x", "--column", "id", "--key", "id"], "--column is NAME:TYPE"),
        (["table", "create", "x", "--column", "id:int", "--key", "id"], "unknown column type 'int'"),
        (["table", "create", "x", "--column", "id:int64", "--key", "ident"], "is no column; there are: id"),
        (["table", "create", "x", "--column", "id:int64", "--key", "id", "--replicas", "5"], "5"),
    ],
)
def test_what_cannot_be_is_refused_in_one_message(cluster: str, words: list[str], fact: str) -> None:
    done = stelae(*words, "--dir", cluster, expect=2)
    assert fact in done.stderr and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_a_folder_without_a_cluster_is_named_with_the_next_step(tmp_path: Path) -> None:
    done = stelae("cluster", "status", str(tmp_path), expect=2)
    assert "make one with: stelae cluster up" in done.stderr
    (tmp_path / "something").touch()
    done = stelae("cluster", "up", str(tmp_path), expect=2)
    assert "is not empty" in done.stderr
