"""The commands on stopped masters: what they must never do, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stelae.cli import run_master_rewrite
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.lifecycle.directory_size import bytes_below
from stelae.machine.files import RealFiles
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId
from tests.e2e.in_process import Done, stelae
from tests.e2e.master_nodes import CLUSTER, Cluster, running, until
from tests.e2e.test_masters import COLUMNS, QUICK
from tests.e2e.test_masters_apart import SLOW, connected, has_the_catalog_of

WIDE = {"id": "int64", **{f"column_with_a_long_name_{n}": "string" for n in range(200)}}


def config_of(cluster: Cluster, master: NodeId, more: str = "") -> str:
    """The ``node.toml`` of a master."""
    file = cluster.root / f"{master}.toml"
    file.write_text(cluster._toml(master) + more)
    return str(file)


def format_new(cluster: Cluster, master: NodeId) -> None:
    layout = DirectoryLayout(str(cluster.root / master))
    format_directory(RealFiles(), layout, Instance(node_id=master, cluster_id=CLUSTER, wal_engine="segmented"))


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a node but its lock."""
    files = (path for path in directory.rglob("*") if path.is_file() and "lock" not in path.name.lower())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


async def command(*words: str, expect: int = 0) -> Done:
    done = await asyncio.to_thread(stelae, "master", *words)
    assert done.exit_code == expect, f"{done.stdout}\n{done.stderr}"
    return done


async def answer(*words: str) -> Any:
    return json.loads((await command(*words, "--json")).stdout)


def test_a_rewritten_master_serves_before_any_new_one_runs_and_may_be_rewritten_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            new = [cluster.new_master(), cluster.new_master()]
            all_three = [f"{node}={cluster.addresses[node]}" for node in (first, *new)]
            config = config_of(cluster, first)
            await cluster.stop(first)
            done = await answer("rewrite", *all_three, "--config", config)
            assert done["changed"]
            assert {m["node_id"]: m["type"] for m in done["members"]} == {first: "VOTER"} | dict.fromkeys(
                new, "PRE_VOTER"
            )
            assert not (await answer("rewrite", *all_three, "--config", config))["changed"]
            await cluster.start(first)
            async with await connected(cluster, first) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
                assert (await client.masters.config()).committed.voters() == (first,)
            await cluster.stop(first)
            assert (await answer("rewrite", all_three[0], "--config", config))["changed"]
            await cluster.start(first)
            async with await connected(cluster, first) as client:
                assert await client.tables() == ["people"]
                assert {node for node, _ in (await client.masters.view()).members} == {first}

    asyncio.run(run())


def test_a_rewrite_that_ended_between_two_changes_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = run_master_rewrite._made, [False]

    async def only_the_first(*arguments: Any) -> None:
        if made[0]:
            raise OSError("ended here")
        made[0] = True
        await make(*arguments)

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=0, settings=QUICK) as cluster:
            (first,) = cluster.masters
            new = [cluster.new_master(), cluster.new_master()]
            words = [f"{node}={cluster.addresses[node]}" for node in (first, *new)]
            config = config_of(cluster, first)
            await cluster.stop(first)
            monkeypatch.setattr(run_master_rewrite, "_made", only_the_first)
            with pytest.raises(OSError, match="ended here"):
                await command("rewrite", *words, "--config", config)
            await cluster.start(first)  # It serves with two of three members.
            await until(lambda: cluster.leader() == first)
            await cluster.stop(first)
            monkeypatch.setattr(run_master_rewrite, "_made", make)
            done = await answer("rewrite", *words, "--config", config)
            assert done["changed"] and {member["node_id"] for member in done["members"]} == {first, *new}

    asyncio.run(run())


def test_one_of_three_masters_is_neither_rewritten_nor_copied_to_under_its_old_uuid(tmp_path: Path) -> None:
    """Alone it may lack what the others have acknowledged, and an empty directory forgets what it has promised."""

    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            runs, stopped, lost = cluster.masters
            for master in (stopped, lost):
                await cluster.stop(master)
            before = contents(tmp_path / stopped)
            alone = f"{stopped}={cluster.addresses[stopped]}"
            refused = await command("rewrite", alone, "--config", config_of(cluster, stopped), expect=2)
            assert "has other voters" in refused.stderr and "stelae recover plan --masters" in refused.stderr
            assert contents(tmp_path / stopped) == before
            await cluster.start(stopped)
            shutil.rmtree(tmp_path / lost)
            format_new(cluster, lost)
            before = contents(tmp_path / lost)
            source = ("--from", cluster.addresses[runs], "--config", config_of(cluster, lost))
            refused = await command("copy", *source, expect=2)
            assert "has, or had, a vote" in refused.stderr and "stelae master replace" in refused.stderr
            async with await connected(cluster, runs) as client:
                await client.masters.remove(lost)
            refused = await command("copy", *source, expect=2)
            assert "has, or had, a vote" in refused.stderr
            assert contents(tmp_path / lost) == before

    asyncio.run(run())


def test_a_lost_leader_is_replaced_at_its_address_by_a_copy_although_every_file_still_lists_it(tmp_path: Path) -> None:
    """Without the copy, a new directory is refused at an address at which its file lists another uuid."""

    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            lost = await cluster.leading()
            others = [master for master in cluster.masters if master != lost]
            async with await connected(cluster, others[0]) as client:
                await client.create_table("before", COLUMNS, "id", replicas=1)
                await cluster.stop(lost)
                shutil.rmtree(tmp_path / lost)
                await until(lambda: cluster.leader() in others)
                new = cluster.new_master()
                cluster.addresses[new] = cluster.addresses[lost]
                format_new(cluster, new)
                with pytest.raises(ConfigError, match=f"lists {lost} at its address"):
                    await cluster.start(new)
                copied = await answer(
                    "copy", "--from", cluster.addresses[others[0]], "--config", config_of(cluster, new)
                )
                assert copied["changed"] and {m["node_id"] for m in copied["members"]} == {lost, *others}
                await cluster.start(new)
                done = await client.masters.replace(lost, cluster.addresses[new], timeout_s=60.0)
                assert {member.node_id for member in done.view.committed.members} == {new, *others}
                await cluster.stop(others[0])
            async with await connected(cluster, new) as client:
                await client.create_table("after", COLUMNS, "id", replicas=1)
                assert await client.tables() == ["after", "before"]

    asyncio.run(run())


def test_a_copy_that_was_killed_goes_on_with_what_has_arrived_and_the_master_joins(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            new = cluster.new_master()
            async with await connected(cluster, first) as client:
                for number in range(4):
                    await client.create_table(f"wide_{number}", WIDE, "id", replicas=1)
                format_new(cluster, new)
                await until_killed(cluster, new, first)
                source = ("--from", cluster.addresses[first], "--config", config_of(cluster, new))
                done = await answer("copy", *source)
                assert done["changed"] and 0 < done["bytes_fetched"] < done["bytes"]
                assert not (await answer("copy", *source))["changed"]
                await cluster.start(new)
                assert (await client.masters.add(cluster.addresses[new], wait=True)).changed
                await until(partial(has_the_catalog_of, cluster, new, first))

    asyncio.run(run())


def start_copy(cluster: Cluster, target: NodeId, source: NodeId) -> subprocess.Popen[bytes]:
    """Start a slow copy in a process of its own."""
    words = ["copy", "--from", cluster.addresses[source], "--config", config_of(cluster, target, SLOW)]
    return subprocess.Popen([sys.executable, "-m", "stelae", "master", *words])


def stage_of(cluster: Cluster, target: NodeId) -> str:
    return DirectoryLayout(str(cluster.root / target)).stage_of(SYSTEM_TABLET)


async def until_killed(cluster: Cluster, target: NodeId, source: NodeId) -> None:
    """Copy slowly, in a process that is killed once something has arrived, and before all has."""
    process, stage = start_copy(cluster, target, source), stage_of(cluster, target)
    try:
        while not os.path.exists(stage) or bytes_below(RealFiles(), stage) < 3 * 4096:
            assert process.poll() is None, "the copy has ended before it was killed"
            await asyncio.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_two_new_masters_are_copied_to_at_once_and_get_their_votes(tmp_path: Path) -> None:
    """The page on offline changes offers it."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            new = [cluster.new_master(), cluster.new_master()]
            async with await connected(cluster, first) as client:
                await client.create_table("wide", WIDE, "id", replicas=1)
                for master in new:
                    format_new(cluster, master)
                copies = [start_copy(cluster, master, first) for master in new]
                stages = [stage_of(cluster, master) for master in new]
                try:
                    while not all(os.path.exists(stage) for stage in stages):
                        assert [copy.poll() for copy in copies] == [None, None], "one has ended before the other began"
                        await asyncio.sleep(0.02)
                    assert [await asyncio.to_thread(copy.wait) for copy in copies] == [0, 0]
                finally:
                    for copy in copies:
                        copy.kill()
                        copy.wait()
                for master in new:
                    await cluster.start(master)
                    assert (await client.masters.add(cluster.addresses[master], wait=True)).changed
                    await until(partial(has_the_catalog_of, cluster, master, first))
                assert set((await client.masters.config()).committed.voters()) == {first, *new}

    asyncio.run(run())
