"""The page about services does what it says: its plugin is found, checked and run by the process of a node."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stelae.client.connection import Connection
from stelae.local.ports import free_ports
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from tests.e2e.test_tutorial import BLOCK
from tests.tablet_rows import write_to

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/add-a-service.md"
RUN_S = 120
"""Longest that a step may take; reached only by a defect."""


class Installed:
    """The plugin of the page, where only the processes of this test find it, and a node that chooses it."""

    def __init__(self, folder: Path) -> None:
        blocks = [text for _, text in BLOCK.findall(PAGE.read_text())]
        self.source, announced, self.chosen = blocks
        self.plugins = folder / "plugins"
        metadata = self.plugins / "leaders-1.0.dist-info"
        metadata.mkdir(parents=True)
        points = tomllib.loads(announced)["project"]["entry-points"]["stelae.plugins"]
        lines = [f"{name} = {value}" for name, value in points.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[stelae.plugins]", *lines, ""]))
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: leaders\nVersion: 1.0\n")
        self.module = self.plugins / "stelae_service_leaders.py"
        self.module.write_text(self.source)
        self.data = folder / "data"
        self.uuid = secrets.token_hex(16)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.file = folder / "node.toml"
        self.file.write_text(
            f'[node]\ndirectory = "data"\nlisten = "{self.address}"\n[cluster]\nid = "c"\n'
            '[tablet]\nid = "t"\nkey = ["id"]\ncolumns = [{name = "id", type = "int64"}]\n'
            f'members = [{{uuid = "{self.uuid}", address = "{self.address}"}}]\n{self.chosen}'
        )

    def process(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that finds the plugin."""
        path = os.pathsep.join(filter(None, [str(self.plugins), os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            [sys.executable, "-m", "stelae", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def run(self, *words: str, expect: int = 0) -> tuple[str, str]:
        """Run a command, and return what it prints and what it says."""
        with self.process(*words) as started:
            out, err = started.communicate(timeout=RUN_S)
        assert started.returncode == expect, f"{out}\n{err}"
        return out, err

    def refused(self) -> str:
        """Run the node, which does not start, and return what it says."""
        return self.run("tserver", "run", "--config", str(self.file), "--until-stdin-closes", expect=2)[1]


async def insert_one(address: str) -> None:
    """Insert a row. Once that is acknowledged, the tablet has had a leader."""
    async with await Connection.connect([address], timeout_s=RUN_S) as client:
        tablet = await client.tablet(TabletId("t"))
        assert not (await write_to(tablet, OpKind.INSERT, [(1,)], timeout_s=RUN_S)).errors


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_it_is_listed_shown_and_checked(installed: Installed) -> None:
    listed = json.loads(installed.run("plugins", "list", "--json")[0])["plugins"]
    assert [one["origin"] for one in listed if (one["kind"], one["name"]) == ("service", "leaders")] == ["leaders 1.0"]
    shown, _ = installed.run("plugins", "show", "service.leaders")
    assert shown.startswith("service.leaders: Appends each change of a leader to a file.\n")
    assert "[service.leaders] of node.toml" in shown and "leaders.jsonl" in shown and "contract" not in shown
    checked = json.loads(installed.run("plugins", "check", "--json")[0])
    assert checked["ok"]
    installed.module.write_text(installed.source.replace("frozen=True, ", ""))
    out, _ = installed.run("plugins", "check", expect=1)
    assert "plugin service.leaders: its Config is not frozen" in out


def test_a_node_that_chooses_it_writes_the_changes_of_leaders(installed: Installed) -> None:
    installed.run("fs", "format", "--config", str(installed.file), "--uuid", installed.uuid)
    written = installed.data / tomllib.loads(installed.chosen)["service"]["leaders"]["file"]
    with installed.process("tserver", "run", "--config", str(installed.file), "--until-stdin-closes") as node:
        try:
            asyncio.run(insert_one(installed.address))
            _, said = node.communicate("", timeout=RUN_S)
        finally:
            node.kill()
    assert node.returncode == 0, said
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert {line["tablet"] for line in lines} == {"t"} and installed.uuid in {line["leader"] for line in lines}


def test_a_node_whose_service_cannot_run_does_not_start_and_names_it(installed: Installed) -> None:
    installed.run("fs", "format", "--config", str(installed.file), "--uuid", installed.uuid)
    installed.module.write_text(installed.source.replace("self.writer.start()", "raise ValueError('no thread')"))
    said = installed.refused()
    assert "plugin service.leaders: the service cannot start: ValueError('no thread')" in said
    assert "Traceback" not in said
    installed.file.write_text(installed.file.read_text().replace('["leaders"]', '["leader"]'))
    said = installed.refused()
    assert "there is no service 'leader'; installed services: bench, leaders" in said
