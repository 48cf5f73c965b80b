"""The log of a node as a process: JSON from the first line to the last, and what it says of a port that is taken."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.ids import TabletId
from stelae.telemetry.target_file import TARGET_FILE

RUN_S = 90
SPEC = TabletSpec(tablet_id=TabletId("t"), columns=({"name": "id", "type": "int64"},), key=("id",))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node that is formatted, and does not run."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("log") / "cluster", SPEC, ClusterOptions(node_count=1), formatted=format_here
    )
    return cluster.nodes[0].directory


def run(config: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a node until it has read the end of its input, which is there at once."""
    command = [sys.executable, "-m", "stelae", "tserver", "run", "--until-stdin-closes", "--config", str(config), *more]
    return subprocess.run(command, input="", capture_output=True, text=True, timeout=RUN_S)


def test_every_line_is_an_object_that_names_the_node_the_tablet_and_the_term(node: Path) -> None:
    done = run(node / "node.toml", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"time", "level", "logger", "node", "event"} <= set(line) for line in lines)
    assert len({line["node"] for line in lines}) == 1 and lines[0]["node"]
    events = {line["event"]: line for line in lines}
    assert events["replica starts"]["tablet"] == "t" and events["replica starts"]["term"] >= 0
    assert {"node serves", "metrics served", "node stopped"} <= set(events)
    assert not (node / "data" / TARGET_FILE).exists(), "removed at an orderly stop"
    config = node / "stranger.toml"
    config.write_text((node / "node.toml").read_text().replace("local-", "other-"))
    done = run(config, "--log-format", "json")
    last = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode != 0 and last["event"] == "node ends" and "other-" in last["fact"], "why is a line too"


def test_a_port_for_metrics_that_is_taken_ends_the_node_before_it_has_opened_anything(node: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = node / "taken.toml"
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text((node / "node.toml").read_text() + f'[metrics]\nlisten = "{listen}"\n')
        done = run(config)
    assert done.returncode == 2
    assert f"error: {config}: metrics cannot be served at {listen}" in done.stderr and "Traceback" not in done.stderr
    assert "node serves" not in done.stderr
