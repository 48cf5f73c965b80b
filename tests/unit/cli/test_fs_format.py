"""``stelae fs format``: which node a directory gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.spi.errors import PluginError

UUID = "0123456789abcdef" * 2

CONFIG = f"""\
[node]
directory = "data"
listen = "127.0.0.1:7051"
advertise = "node-1.example:7051"
[cluster]
id = "demo"
[tablet]
id = "t"
columns = [{{name = "k", type = "int64"}}]
key = ["k"]
members = [{{uuid = "{UUID}", address = "ADDRESS"}}]
"""


@pytest.mark.parametrize("address", ["node-1.example:7051", "127.0.0.1:7051"])
def test_a_node_is_the_member_that_has_its_address(tmp_path: Path, address: str) -> None:
    """Known by its name it got a random uuid, and then ran for ever as a replica that no member knows."""
    config = tmp_path / "node.toml"
    config.write_text(CONFIG.replace("ADDRESS", address))
    done = CliRunner().invoke(build_app("fs"), ["fs", "format", "--config", str(config), "--json"])
    assert json.loads(done.stdout)["uuid"] == UUID


def test_a_log_engine_that_is_not_installed_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """The directory could not be used afterwards: no node starts with that engine, and none converts its log."""
    done = CliRunner().invoke(build_app("fs"), ["fs", "format", str(tmp_path / "node"), "--wal-engine", "segmentd"])
    assert isinstance(done.exception, PluginError) and "there is no wal engine 'segmentd'" in str(done.exception)
    assert not (tmp_path / "node").exists()
