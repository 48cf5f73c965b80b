"""Real processes: a move that waits shows its steps, and how many bytes of how many are copied."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from stelae.client import connect
from tests.e2e import in_process
from tests.e2e.test_copies import BOUND, rows_of
from tests.e2e.test_lagging_replica import RUN_S, Servers, serving

SETTINGS: dict[str, dict[str, Any]] = {**BOUND, "copy.streaming": {"chunk_bytes": 4096}, "stage": {"pause_ms": 50}}


def test_a_move_shows_its_steps_and_the_bytes_of_its_copy_as_they_grow(tmp_path: Path) -> None:
    """The copy is slow until it was seen to grow, so the test does not depend on the speed of the machine."""
    with serving(tmp_path / "cluster", SETTINGS, nodes=4) as servers:
        more = incompressible(servers)
        servers.load(lambda: len(servers.bases()) == 3 and min(servers.bases().values()) > 2)
        source, target, config_id = ends_of(servers)
        where = ("--connect", servers.cluster.addresses[0])
        limited(target, "4000", *where)
        words = ("tablet", "move", servers.tablet_id, source, target, *where)
        check_stale(config_id, *words)
        command = [sys.executable, "-m", "stelae", *words, "--config-id", config_id, "--progress", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as move:
            assert move.stdout is not None and move.stderr is not None
            seen: list[str] = []
            for line in move.stderr:
                seen.append(line.strip())
                if len(set(copied_in(seen))) == 3:
                    limited(target, "none", *where)
            shown = move.stdout.read()
        assert move.returncode == 0, seen
        copied = copied_in(seen)
        assert copied == sorted(copied) and len(set(copied)) >= 3, seen
        assert any(re.search(r"copying .* at .*/s, about .* left", line) for line in seen), seen
        assert seen[-1].endswith("is removed") and "the old replica on" in seen[-1]
        check_document(json.loads(shown), servers, source, target)
        assert rows_of(servers) == [*range(servers.count), *more]


def incompressible(servers: Servers) -> range:
    """Insert rows of which a copy needs many pieces. Return their ids, beyond all others."""
    ids = range(10**6, 10**6 + 200)
    with connect(servers.cluster.addresses[0]) as client:
        rows = [{"id": number, "text": secrets.token_hex(300)} for number in ids]
        client.table("late").insert(rows, timeout_s=RUN_S)
    return ids


def ends_of(servers: Servers) -> tuple[str, str, str]:
    """A follower and the server without a replica, as addresses, and the committed config id."""
    with connect(servers.cluster.addresses[0]) as client:
        view = client.replicas(servers.tablet_id, timeout_s=RUN_S).config(timeout_s=RUN_S)
    members = {member.node_id for member in view.committed.members}
    (target,) = (node.address for node in servers.cluster.servers if node.node_id not in members)
    source = next(member.address for member in view.committed.members if member.node_id != view.node_id)
    return source, target, str(view.committed.op_id)


def limited(target: str, rate: str, *where: str) -> None:
    assert in_process.stelae("copy", "limit", target, "--in", rate, *where).exit_code == 0


def check_stale(config_id: str, *words: str) -> None:
    """A move for another config than the committed one is refused with both ids and the next step."""
    refused = in_process.stelae(*words, "--config-id", "1.999999")
    assert refused.exit_code == 2
    assert f"the committed config is {config_id}, the change is meant for 1.999999; look at" in refused.stderr


def copied_in(lines: list[str]) -> list[float]:
    """The bytes that the lines say to be copied."""
    units = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
    found = (re.search(r"copying ([\d.]+) (\w+) of ", line) for line in lines)
    return [float(match[1]) * units[match[2]] for match in found if match is not None]


def check_document(found: dict[str, Any], servers: Servers, source: str, target: str) -> None:
    """The document has the copy as it ended, and the new members."""
    assert (found["changed"], found["step"]) == (True, "DONE")
    copy = found["copy"]
    assert copy["bytes_done"] == copy["bytes_total"] > 0 and copy["eta_ms"] == 0 and "bytes_per_s" in copy
    addresses = {member["address"] for member in found["committed_members"]}
    assert target in addresses and source not in addresses and len(addresses) == 3
