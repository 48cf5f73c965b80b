"""``stelae cluster status``: a node whose directory a command for a stopped node has locked. It does not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stelae.cli import run_cluster
from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.run_cluster import run_down, run_status
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import lock_directory
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.machine.files import RealFiles

PID = 4711


def test_a_node_whose_data_another_command_uses_is_down_and_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was silent, with the process id of a conversion of its log, and `cluster down` killed the conversion."""

    async def nothing(_: ClusterWithMasters) -> Any:
        return {}

    async def no_catalog(_: ClusterWithMasters) -> Any:
        return {"leader": None, "tables": [], "problem": "no node answered"}

    folder = tmp_path / "c"
    made = ClusterWithMasters.create(
        folder, ClusterOptions(node_count=1), masters=1, formatted=lambda node, node_id: None
    )
    (server,) = made.servers
    (server.directory / "data").mkdir(parents=True, exist_ok=True)
    lock = lock_directory(RealFiles(), DirectoryLayout(str(server.directory / "data")), PID, offline=True)
    monkeypatch.setattr(run_cluster, "unhealthy_nodes", nothing)
    monkeypatch.setattr(run_cluster, "_catalog_state", no_catalog)
    monkeypatch.setattr(run_cluster, "_signal", lambda pid, _: pytest.fail(f"a signal to {pid}"))
    try:
        assert run_status(folder, as_json=True) == EXIT_FAILED
        found = {node["name"]: node for node in json.loads(capsys.readouterr().out)["nodes"]}
        assert (found["tserver-1"]["state"], found["tserver-1"]["pid"]) == ("down", None)
        assert f"process {PID}, a command for a stopped node, uses its data" in found["tserver-1"]["problem"]
        assert found["master-1"]["problem"] == ""
        run_down(folder, 1, as_json=False)
        assert "no node was running" in capsys.readouterr().err
    finally:
        lock.release()
