"""``stelae plugins show`` of names that are not the name of one engine or service."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import run


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lmdb", "plugin 'lmdb' is not unique; name one of them: store.lmdb or wal.lmdb"),
        ("cli.bench", "plugin 'cli.bench' is neither an engine nor a service, so it has no settings to show"),
    ],
)
def test_show_of_a_name_of_two_plugins_or_of_a_command_says_so(name: str, message: str) -> None:
    """The one error listed all names, the other said that an installed plugin is not installed."""
    done = run("plugins", "show", name)
    assert (done.returncode, done.stderr) == (2, f"error: {message}\n")
