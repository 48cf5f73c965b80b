"""The commands that change masters: what they refuse before they ask anybody, and what their help teaches."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import run

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
