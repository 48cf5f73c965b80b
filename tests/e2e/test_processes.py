"""Nodes and the demo as real processes: killed, interrupted, misconfigured, started twice."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from tests.e2e import in_process
from tests.e2e.starting import start
from tests.tablet_rows import write_to

STELAE = [sys.executable, "-m", "stelae"]
RUN_S = 90
SPEC = TabletSpec(
    tablet_id=TabletId("t"), columns=({"name": "id", "type": "int64"}, {"name": "text", "type": "string"}), key=("id",)
)
FAST = ClusterOptions(settings={"consensus.raft": {"election_timeout_ms": 300}})


def stelae(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STELAE, *arguments], capture_output=True, text=True, timeout=RUN_S, **more)


def refused(*arguments: str, process: bool) -> tuple[int, str]:
    """Exit code and last words of a command that is to do nothing, with an interpreter of its own or without."""
    if process:
        done = stelae(*arguments)
        return done.returncode, done.stderr
    here = in_process.stelae(*arguments)
    return here.exit_code, here.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", SPEC, FAST, formatted=format_here)
    try:
        yield made
    finally:
        made.stop()


def csv_file(path: Path, rows: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "name", "score"])
        writer.writerows((n, f"name {n}", n / 4) for n in range(rows))
    return path


def node_processes(folder: Path) -> list[int]:
    """Processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command and b"run\0--config" in command:
                found.append(int(entry.name))
    return found


def wait_until_gone(folder: Path) -> None:
    """A node has let go of its directory a moment before its process is gone."""
    deadline = time.monotonic() + 30
    while node_processes(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert node_processes(folder) == []


def test_a_node_may_open_as_many_files_as_its_hard_limit_says(cluster: LocalCluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 1, hard))
    try:
        start(cluster)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for node in cluster.nodes:
        assert node.pid is not None
        assert resource.prlimit(node.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_every_node_killed_at_once_under_load_loses_no_acknowledged_row(cluster: LocalCluster) -> None:
    async def load_until_killed() -> list[int]:
        acked: list[int] = []
        async with await Connection.connect(cluster.addresses, timeout_s=20) as client:
            tablet = await client.tablet(cluster.tablet_id)

            async def one(number: int) -> None:
                result = await write_to(tablet, OpKind.INSERT, [(number, f"row {number}")])
                assert not result.errors and not result.refusal
                acked.append(number)

            tasks = [asyncio.ensure_future(one(n)) for n in range(2000)]
            while len(acked) < 500:
                await asyncio.sleep(0)
            for node in cluster.nodes:
                node.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return acked

    async def read() -> dict[int, str]:
        async with await Connection.connect(cluster.addresses, timeout_s=20) as client:
            tablet = await client.tablet(cluster.tablet_id)
            return dict([row async for batch in tablet.scan() for row in batch.to_rows()])

    cluster.start()
    acked = asyncio.run(load_until_killed())
    cluster.start()
    rows = asyncio.run(read())
    assert len(acked) >= 500
    assert {n: rows.get(n) for n in acked} == {n: f"row {n}" for n in acked}


def test_the_demo_gives_back_every_row_of_a_users_file_and_leaves_a_cluster_that_others_use(tmp_path: Path) -> None:
    source = csv_file(tmp_path / "scores.csv", 20_000)
    folder = tmp_path / "kept"
    engines = ("--wal", "segmented,lmdb,shared", "--store", "memory,columnar,memory", "--election-timeout-ms", "500")
    try:
        done = stelae("demo", "--input", str(source), "--key", "id", "--json", "--keep", str(folder), *engines)
        assert done.stdout, done.stderr
        report = json.loads(done.stdout)
        assert (report["masters"], report["tablets"], report["election_timeout_ms"]) == (3, 4, 500)
        assert report["rows_source"] == report["rows_acked"] == report["rows_read"] == 20_000
        assert report["rows_lost"] == report["rows_wrong"] == 0
        assert report["replicas_agree"] and report["healthy"], report["problems"]
        assert [round(k["acked_at_kill"] / 20_000, 1) for k in report["kills"]] == [0.2, 0.5, 0.8]
        assert ["tserver-" in k["what"] for k in report["kills"]] == [True, False, True]
        kinds = ["server_killed", "master_killed", "disk_lost", "server_joined"]
        assert [event["kind"] for event in report["events"]] == kinds
        assert 0 < report["healed_ms"] < 60_000
        # Only a busy machine may make a run fail, by a gap that was too long.
        assert [p for p in report["problems"] if "ms are allowed" not in p] == []
        assert done.returncode == (0 if report["ok"] else 1)
        assert len(node_processes(folder)) == 6
        assert stelae("check", "--dir", str(folder)).returncode == 0
        scanned = json.loads(stelae("scan", "--dir", str(folder), "--json").stdout)
        assert scanned["columns"] == ["id", "name", "score"]
        assert scanned["rows"] == [[n, f"name {n}", n / 4] for n in range(20_000)]
        limited = stelae("scan", "--dir", str(folder), "--columns", "name", "--limit", "2")
        assert limited.stdout == "name\nname 0\nname 1\n"
        wrong = stelae("scan", "--dir", str(folder), "--columns", "nam")
        assert wrong.returncode == 2 and "the table has: id, name, score" in wrong.stderr
        again = stelae("demo", "--keep", str(folder))
        assert again.returncode == 2 and "has a cluster already" in again.stderr
    finally:
        down = stelae("demo", "--down", str(folder))
    assert down.returncode == 0
    wait_until_gone(folder)


@pytest.mark.long
@pytest.mark.parametrize(("wal", "store"), [("lmdb", "lmdb"), ("shared", "columnar")])
def test_the_demo_loses_no_row_where_every_node_has_the_same_other_engines(
    tmp_path: Path, wal: str, store: str
) -> None:
    source = csv_file(tmp_path / "scores.csv", 2000)
    engines = ("--wal", wal, "--store", store, "--election-timeout-ms", "500")
    done = stelae("demo", "--input", str(source), "--key", "id", "--json", *engines)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["rows_source"] == report["rows_acked"] == report["rows_read"] == 2000
    assert report["rows_lost"] == report["rows_wrong"] == 0
    assert report["replicas_agree"] and report["healthy"], report["problems"]
    assert ["tserver-" in kill["what"] for kill in report["kills"]] == [True, False, True]
    assert done.returncode == (0 if report["ok"] else 1)


@pytest.mark.parametrize(
    ("names", "says"), [("segmented,log", "known wal engines"), ("lmdb,lmdb,lmdb,lmdb", "4 wal engines for 3 nodes")]
)
def test_engines_that_no_node_can_have_are_named_and_nothing_is_made(tmp_path: Path, names: str, says: str) -> None:
    folder = tmp_path / "kept"
    code, said = refused("demo", "--wal", names, "--keep", str(folder), process=False)
    assert code == 2 and says in said
    assert not folder.exists()


def test_ctrl_c_ends_the_demo_with_a_message_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    demo = subprocess.Popen(
        [*STELAE, "demo", "--keep", str(folder)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert demo.stderr is not None
    for line in demo.stderr:
        if line.endswith("loading\n"):
            break
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=RUN_S)
    assert demo.returncode == 130 and errors.endswith("interrupted; every node was stopped\n")
    assert node_processes(folder) == []


def test_nodes_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from stelae.local.cluster import *; from stelae.spi.ids import TabletId\n"
        "spec = TabletSpec(tablet_id=TabletId('t'),"
        " columns=({'name': 'id', 'type': 'int64'},), key=('id',))\n"
        f"cluster = LocalCluster.create(Path({str(tmp_path / 'c')!r}), spec, ClusterOptions())\n"
        "cluster.start(); print('started', flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    deadline = time.monotonic() + 30
    while len(node_processes(tmp_path / "c")) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)  # A process that has just been started shows its command line a moment later.
    assert len(node_processes(tmp_path / "c")) == 3
    parent.kill()
    parent.communicate()
    wait_until_gone(tmp_path / "c")


def test_a_second_process_on_the_same_directory_is_told_who_holds_it(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    node.start()
    deadline = time.monotonic() + 30
    while "node serves" not in node.log_tail() and time.monotonic() < deadline:
        node.check()
        time.sleep(0.02)
    second = stelae("tserver", "run", "--config", str(node.config_path))
    assert second.returncode == 1
    assert f"in use by process {node.running_pid()}" in second.stderr


def test_a_taken_port_is_named_and_ends_the_node(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    port = int(node.address.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        done = stelae("tserver", "run", "--config", str(node.config_path))
    assert done.returncode == 2
    assert str(port) in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((r'wal = "segmented"', 'wal = "segmentet"'), r"node\.toml:\d+: .*segmentet.*"),
        ((r"\[node\]", "[node]\nlisten_on = 1"), r"node\.toml:\d+: .*listen_on"),
        ((r"election_timeout_ms = \d+", "election_timeout_ms = -5"), r"node\.toml:\d+: .*-5"),
        ((r"election_timeout_ms = \d+", 'election_timeout_ms = "x"'), r"node\.toml:\d+: "),
        ((r'listen = "127.0.0.1', 'listen = "0.0.0.0'), r"node\.toml:\d+: .*other machines"),
    ],
)
def test_misconfiguration_gives_one_message_with_file_and_line_and_exit_code_2(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    """The first as a process, which has to end without a traceback; the others are the same command, called here."""
    options = ClusterOptions(engines={"wal": "segmented"}, settings=FAST.settings)
    node = LocalCluster.create(tmp_path / "c", SPEC, options, formatted=format_here).nodes[0]
    text, changed = re.subn(*change, node.config_path.read_text(), count=1)
    assert changed
    node.config_path.write_text(text)
    code, said = refused("tserver", "run", "--config", str(node.config_path), process="segmentet" in expected)
    assert code == 2, said
    assert re.search(expected, said) and "Traceback" not in said


@pytest.mark.parametrize(
    ("content", "arguments", "expected"),
    [
        ("id,name\n1,a\n1,b\n", ["--key", "id"], "same key"),
        (
            "id,name\n1,a\n",
            ["--key", "nope"],
            "pass --key with one or more of its columns, separated by commas: id, name",
        ),
        ("id,name\n", ["--key", "id"], "has no rows"),
        ("id,name\n1,a\n2,b\n", ["--key", "id"], "has 2 rows, too few"),
        ("id,name\n1,a\n2\n", ["--key", "id"], "cannot read"),
        ("id,name\n1,a\n", [], "--input needs --key"),
    ],
)
def test_a_bad_input_file_is_refused_before_anything_starts(
    tmp_path: Path, content: str, arguments: list[str], expected: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(content)
    code, said = refused("demo", "--input", str(path), *arguments, process=expected == "same key")
    assert code == 2 and expected in said and "Traceback" not in said
    assert os.listdir(tmp_path) == ["in.csv"]


@pytest.mark.parametrize("command", [("demo",), ("bench", "cluster", "--quick")])
def test_an_engine_that_is_not_installed_is_a_misuse_that_names_the_known_ones(command: tuple[str, ...]) -> None:
    code, said = refused(*command, "--wal", "nope", process=False)
    assert code == 2 and "no wal engine 'nope'; known" in said and "Traceback" not in said
