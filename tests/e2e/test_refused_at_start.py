"""A ``node.toml`` that contradicts what is known is refused by the process, with both sides and exit code 2."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.local.ports import free_ports
from tests.e2e.test_cluster_commands import answer, process

RUN_S = 120


def run(role: str, config: Path, expect: int) -> str:
    """Run a node whose standard input ends at once; return what it says. It ends by itself, or when it has started."""
    command = [sys.executable, "-m", "stelae", role, "run", "--config", str(config), "--until-stdin-closes"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    return done.stderr


def alone(folder: Path, section: str) -> Path:
    """The file of a node without any other."""
    (port,) = free_ports(1)
    file = folder / "node.toml"
    head = f'[node]\ndirectory = "data"\nlisten = "127.0.0.1:{port}"\n[cluster]\nid = "c"\n'
    file.write_text(head + section)
    return file


def test_a_server_with_neither_masters_nor_a_tablet_is_refused(tmp_path: Path) -> None:
    """It ran, reported to nobody and served nothing."""
    file = alone(tmp_path, "")
    process("fs", "format", "--config", str(file))
    said = run("tserver", file, expect=2)
    assert f"{file}: a tablet server needs [masters] or [tablet], and has neither" in said


def test_a_tablet_section_that_differs_from_the_stored_tablet_is_refused(tmp_path: Path) -> None:
    uuid = secrets.token_hex(16)
    (port,) = free_ports(1)
    tablet = (
        '[tablet]\nid = "t"\nkey = ["id"]\ncolumns = [{name = "id", type = "int64"}]\n'
        f'members = [{{uuid = "{uuid}", address = "127.0.0.1:{port}"}}]\n'
    )
    file = alone(tmp_path, tablet)
    process("fs", "format", "--config", str(file), "--uuid", uuid)
    run("tserver", file, expect=0)
    file.write_text(file.read_text().replace("int64", "string"))
    said = run("tserver", file, expect=2)
    assert f"{file}: [tablet] has the columns id string; key id" in said
    assert "tablet t has id int64; key id (version 1)" in said


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A cluster of one master and one tablet server that has begun, and is down."""
    directory = tmp_path / "cluster"
    process("cluster", "up", str(directory), "--masters", "1", "--servers", "1")
    try:
        yield directory
    finally:
        process("cluster", "down", str(directory))


def with_two_more_masters(file: Path) -> list[str]:
    """List two masters that there are not beside the one that there is; return all addresses."""
    text = file.read_text()
    found = re.search(r"^\[masters\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found
    members = re.findall(r"\{[^{}]*\}", found[1])
    ports = free_ports(2)
    more = [f'{{uuid = "{secrets.token_hex(16)}", address = "127.0.0.1:{port}"}}' for port in ports]
    file.write_text(text.replace(found[0], f"[masters]\nmembers = [{', '.join([*members, *more])}]\n\n"))
    return re.findall(r'address = "([^"]+)"', " ".join([*members, *more]))


def test_a_master_whose_list_differs_from_its_record_goes_by_the_record_and_says_so(cluster: Path) -> None:
    """The log rules who the masters are. The list is for the first contact, so a difference is no error (ADR 80)."""
    process("cluster", "down", str(cluster))
    (file,) = cluster.glob("master-*/node.toml")
    one, *others = with_two_more_masters(file)
    said = run("master", file, expect=0)
    assert f"[masters] lists {one}" in said and all(other in said for other in others), said
    assert f"the masters are {one}" in said and "list them in [masters]" in said


def test_a_server_whose_list_differs_from_the_masters_goes_by_the_masters_and_says_so(cluster: Path) -> None:
    nodes = answer("cluster", "status", str(cluster))["nodes"]
    server = next(node for node in nodes if node["role"] == "tserver")
    process("cluster", "down", str(cluster))
    file = cluster / server["name"] / "node.toml"
    before = file.read_text()
    one, *others = with_two_more_masters(file)
    (cluster / server["name"] / "data" / "masters").unlink(missing_ok=True)
    (master,) = cluster.glob("master-*/node.toml")
    command = [sys.executable, "-m", "stelae", "master", "run", "--config", str(master), "--until-stdin-closes"]
    follow = [sys.executable, "-m", "stelae", "tserver", "run", "--config", str(file), "--until-stdin-closes"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as running,
        subprocess.Popen(follow, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as followed,
    ):
        assert running.stdin and followed.stdin and followed.stderr
        said = next(line for line in followed.stderr if "[masters] lists" in line)
        followed.stdin.close()
        followed.stderr.read()
        running.stdin.close()
    assert followed.returncode == 0
    assert f"[masters] lists {one}" in said and all(other in said for other in others), said
    assert f"the masters are {one}" in said
    file.write_text(before)


def test_check_warns_of_masters_and_servers_whose_lists_differ(cluster: Path) -> None:
    """Only the log of each node said so."""
    process("cluster", "down", str(cluster))
    files = [*cluster.glob("master-*/node.toml"), *cluster.glob("tserver-*/node.toml")]
    assert len(files) == 2
    lists = [with_two_more_masters(file) for file in files]
    process("cluster", "up", str(cluster))
    found = answer("check", "--dir", str(cluster))
    told = sorted(text for text in found["warnings"] if text.startswith("[masters] of"))
    assert found["ok"] and len(told) == 2, found
    assert all(any(all(address in text for address in one) for text in told) for one in lists), told
