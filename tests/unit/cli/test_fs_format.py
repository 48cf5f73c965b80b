"""``stelae fs format``: which node a directory gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.spi.errors import PluginError
from tests.unit.cli.test_commands import CONFIG, UUID

LISTEN = '"127.0.0.1:7051"'
NAMED = CONFIG.replace(f"listen = {LISTEN}", f'listen = {LISTEN}\nadvertise = "node-1.example:7051"')
"""A node that listens at an address, and is known by another one."""


@pytest.mark.parametrize("address", ["node-1.example:7051", "127.0.0.1:7051"])
def test_a_node_is_the_member_that_has_its_address(tmp_path: Path, address: str) -> None:
    """Known by its name it got a random uuid, and then ran for ever as a replica that no member knows."""
    config = tmp_path / "node.toml"
    config.write_text(NAMED.replace(f"address = {LISTEN}", f'address = "{address}"'))
    done = CliRunner().invoke(build_app("fs"), ["fs", "format", "--config", str(config), "--json"])
    assert json.loads(done.stdout)["uuid"] == UUID


def test_a_master_that_gets_another_uuid_than_its_list_has_is_told_which_one_it_needs(tmp_path: Path) -> None:
    """It was formatted without a word, and refused to start: its list has another node at its address."""
    config = tmp_path / "node.toml"
    masters = f'[masters]\nmembers = [{{ uuid = "{UUID}", address = {LISTEN} }}]\n'
    config.write_text(f'[node]\ndirectory = "data"\nlisten = {LISTEN}\n[cluster]\nid = "c"\n{masters}')
    done = CliRunner().invoke(build_app("fs"), ["fs", "format", "--config", str(config)])
    assert done.exit_code == 0 and done.stdout.strip() != UUID
    assert f"[masters] lists another uuid at the address of this node: {UUID}" in done.stderr
    # Who replaced a lost master by the page was told to remove the directory first.
    assert done.stderr.index("keep the new uuid") < done.stderr.index("remove the directory")
    assert "stelae master copy" in done.stderr
    config.write_text(config.read_text().replace("data", "other"))
    given = ["fs", "format", "--config", str(config), "--uuid", UUID]
    done = CliRunner().invoke(build_app("fs"), given)
    assert "lists another" not in done.stderr


def test_a_log_engine_that_is_not_installed_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """The directory could not be used afterwards: no node starts with that engine, and none converts its log."""
    done = CliRunner().invoke(build_app("fs"), ["fs", "format", str(tmp_path / "node"), "--wal-engine", "segmentd"])
    assert isinstance(done.exception, PluginError) and "there is no wal engine 'segmentd'" in str(done.exception)
    assert not (tmp_path / "node").exists()
