"""The commands that change masters: what they refuse before they ask anybody, and what their help teaches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.cli.kit.name_lookup import SharedAddress
from stelae.cli.member_text import NamedNode
from stelae.cli.run_master_members import _OpenMasters
from stelae.spi.errors import Unavailable
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import Member, TabletConfig
from tests.unit.cli.test_commands import run

LOST, NEW, THIRD, FOURTH = (NodeId(letter * 32) for letter in "cdef")

COMMANDS = {
    "add": ("127.0.0.1:1",),
    "remove": ("127.0.0.1:1",),
    "replace": ("127.0.0.1:1", "127.0.0.1:2"),
    "transfer": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_needs_masters_to_ask(command: str) -> None:
    done = run("master", command, *COMMANDS[command])
    assert done.returncode == 2 and "pass either --connect HOST:PORT of a master, or --dir DIR" in done.stderr


@pytest.mark.parametrize("command", ["add", "remove", "transfer"])
def test_a_config_id_that_is_none_is_refused_before_anybody_is_asked(command: str) -> None:
    done = run("master", command, *COMMANDS[command], "--config-id", "new", "--connect", "127.0.0.1:1")
    assert done.returncode == 2 and "--config-id is 'new'; write TERM.INDEX" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_says_what_happens_and_how_it_is_called(command: str) -> None:
    shown = run("master", command, "--help")
    assert shown.returncode == 0 and "--connect" in shown.stdout and "--json" in shown.stdout
    assert len(shown.stdout) > 600


def test_the_group_lists_its_commands() -> None:
    lines = run("master", "--help").stdout.partition("Commands:")[2].splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert names == ["run", "list", "describe", "add", "remove", "replace", "transfer", "rewrite", "copy"]


def opened(members: dict[NodeId, str], answers: NodeId | None = None) -> _OpenMasters:
    """The masters of a cluster, by address. ``answers``: the node that answers at any address."""
    config = TabletConfig(op_id=ZERO, members=tuple(Member(node_id=n, address=a) for n, a in members.items()))

    async def shown(**_: float) -> Any:
        return SimpleNamespace(config=config, node_id=THIRD)

    async def node_at(address: str, **_: float) -> NodeId:
        if answers is None:
            raise Unavailable(f"no answer from {address}")
        return answers

    masters: Any = SimpleNamespace(config=shown, node_at=node_at)
    return _OpenMasters(masters, node_at, None, {}, 1.0)


TWO_AT_ONE = {LOST: "p:1", NEW: "p:1", THIRD: "q:1"}


def test_an_address_of_two_masters_is_refused_with_both_uuids() -> None:
    """'master remove p:1' removed the new master, which was healthy, and kept the lost one."""
    masters = opened(TWO_AT_ONE, NEW)
    with pytest.raises(SharedAddress, match=f"2 masters have the address p:1: {LOST}, {NEW}; write the uuid"):
        asyncio.run(masters.named("p:1"))
    with pytest.raises(SharedAddress, match="write the uuid"):
        asyncio.run(masters.named("p:1", not_the_one_at="q:1"))
    for given in (LOST, LOST[:4]):
        assert asyncio.run(masters.named(given)) == NamedNode(LOST, "p:1")
    assert asyncio.run(masters.named("q:1")) == NamedNode(THIRD, "q:1")


def test_a_replacement_at_one_address_that_was_cut_short_goes_on_with_the_lost_master() -> None:
    """It was refused: the master at p:1 is the node itself."""
    assert asyncio.run(opened(TWO_AT_ONE, NEW).named("p:1", not_the_one_at="p:1")) == NamedNode(LOST, "p:1")
    before = opened({LOST: "p:1", THIRD: "q:1"}, NEW)
    assert asyncio.run(before.named("p:1", not_the_one_at="p:1")) == NamedNode(LOST, "p:1")
    with pytest.raises(Unavailable):
        asyncio.run(opened(TWO_AT_ONE).named("p:1", not_the_one_at="p:1"))
    with pytest.raises(SharedAddress, match="2 masters"):
        asyncio.run(opened({**TWO_AT_ONE, FOURTH: "p:1"}, NEW).named("p:1", not_the_one_at="p:1"))
