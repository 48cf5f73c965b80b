"""The pages on changing and on recovering the masters do what they say: their commands are run as they stand.

A test prepares the machines that a page speaks of: local processes, whose addresses take the place of those on the
page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.client import connect
from stelae.local.cluster import sections_text
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from tests.e2e.masters_under_load import killed_at_the_end, start
from tests.e2e.test_cluster_commands import RUN_S, answer, until_given_up

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto"
BLOCK = re.compile(r"^( *)```(sh|python)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


class Page:
    """The blocks of a page, with the addresses of the nodes that a test has started."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        _, *parts = HEADING.split((HOWTO / name).read_text())
        self._parts = dict(zip(parts[::2], parts[1::2], strict=True))
        self.nodes: dict[str, str] = {}  #: Addresses by those of the page.
        self.left = {(part, number) for part, text in self._parts.items() for number in range(len(BLOCK.findall(text)))}
        """The blocks that were not run yet, by part and number."""

    def run(self, part: str, number: int = 0, **words: str) -> str:
        """Run a block of a part, with some words replaced, and return what it prints."""
        _, kind, body = BLOCK.findall(self._parts[part])[number]
        self.left.discard((part, number))
        text = textwrap.dedent(body)
        for before, after in {**words, **self.nodes}.items():
            text = text.replace(before, after)
        if kind == "python":
            text = f"from stelae.client import connect\n{text}"
        command = [sys.executable, "-c", text] if kind == "python" else ["sh", "-euc", text]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            command, cwd=self._folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=RUN_S
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def make() -> Iterator[list[ClusterWithMasters]]:
    """Clusters that a test makes with ``start``; all of their processes end with it."""
    with killed_at_the_end() as made:
        yield made


def voters(node: NodeProcess) -> set[str]:
    """Return the masters that have a vote, by what a node knows."""
    listed = answer("master", "list", "--connect", node.address)["masters"]
    return {one["node_id"] for one in listed if one["type"] == "VOTER"}


def started(cluster: ClusterWithMasters) -> NodeProcess:
    """Start one more master, which waits to be added."""
    node = cluster.add_master()
    node.start()
    return node


def lose(cluster: ClusterWithMasters, *lost: NodeProcess) -> None:
    for node in lost:
        node.kill()
        cluster.remove_master(node)


def test_the_page_on_changes_makes_three_masters_of_one_and_replaces_a_lost_one(
    tmp_path: Path, make: list[ClusterWithMasters]
) -> None:
    page = Page("change-the-masters.md", tmp_path)
    cluster = start(tmp_path, make, 1)
    one, two, three = cluster.masters[0], started(cluster), started(cluster)
    page.nodes = {f"10.0.0.{n}:7051": node.address for n, node in enumerate((one, two, three), 1)}
    assert one.address in page.run("Look at the masters")
    page.run("From one master to three")
    assert voters(one) == {node.node_id for node in (one, two, three)}
    lose(cluster, three)
    four = started(cluster)
    page.nodes["10.0.0.4:7051"] = four.address
    page.run("Replace a lost master")
    assert voters(one) == {node.node_id for node in (one, two, four)}
    lose(cluster, four)
    five = started(cluster)
    page.nodes |= {"10.0.0.3:7051": four.address, "10.0.0.4:7051": five.address}
    assert five.address in page.run("In Python")
    assert voters(one) == {node.node_id for node in (one, two, five)}
    assert not page.left


def rewrite_masters(node: NodeProcess, master: NodeProcess) -> None:
    """List one master in the ``node.toml`` of a node."""
    sections: dict[str, Any] = tomllib.loads(node.config_path.read_text())
    sections["masters"]["members"] = [{"uuid": master.node_id, "address": master.address}]
    node.config_path.write_text(sections_text(sections, None))


def test_the_page_on_recovery_recovers_masters_from_a_survivor_and_a_catalog_from_the_servers(
    tmp_path: Path, make: list[ClusterWithMasters]
) -> None:
    page = Page("recover-the-masters.md", tmp_path)
    cluster = start(tmp_path, make, 3, servers=3)
    *lost, survivor = cluster.masters
    page.nodes = {f"10.0.0.{n}:7051": node.address for n, node in enumerate(cluster.masters, 1)}
    page.nodes |= {f"10.0.0.1{n}:7052": node.address for n, node in enumerate(cluster.servers, 1)}
    with connect(survivor.address) as client:
        client.create_table("readings", {"sensor": "int64", "celsius": "double"}, "sensor").insert([{"sensor": 1}])
    lose(cluster, *lost)
    assert "readings" in page.run("Look at what a master knows")
    for _ in until_given_up():  # The survivor has to notice that no master leads.
        page.run("Make a plan")
        if json.loads((tmp_path / "masters.json").read_text())["tablets"]:
            break
    page.run("Apply it", **{"apply masters.json": "apply masters.json --yes"})
    joining = [started(cluster), started(cluster)]
    page.nodes |= {f"10.0.0.{n}:7051": node.address for n, node in enumerate(joining, 4)}
    page.run("Apply it", 1)
    assert voters(survivor) == {node.node_id for node in (survivor, *joining)}
    begin_catalog(cluster, page)
    shown = page.run("If no master is left")
    (table_id,) = re.findall(r"^table ([0-9a-f]{32})", shown, re.MULTILINE)
    page.run("If no master is left", 1, **{"3f9c1a20": table_id[:8]})
    with connect(cluster.masters[0].address) as client:
        assert client.table("readings").scan().to_pylist() == [{"sensor": 1, "celsius": None}]
    assert not page.left


def begin_catalog(cluster: ClusterWithMasters, page: Page) -> None:
    """Lose all masters, and begin a new catalog with one new master, as the page says."""
    first = cluster.add_master()
    lose(cluster, *(node for node in list(cluster.masters) if node is not first))
    for node in (first, *cluster.servers):
        rewrite_masters(node, first)
    for node in cluster.servers:
        node.kill()
        node.start()
    first.start()
    page.nodes["10.0.0.4:7051"] = first.address
    with connect(first.address, timeout_s=RUN_S) as client:
        assert client.tables(timeout_s=RUN_S) == []
