"""The fencing audit: every action is in it, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args, get_type_hints

from stelae.protocol.actions import DeleteReplica, ServerAction
from stelae.server.master.core.events import AskPolicy, AskReadIndex, Confirm, Effect, Refuse, Send

ROOT = Path(__file__).parents[3]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (ROOT / "docs/reference/fencing.md").read_text().splitlines()
    if line.startswith("| `")
]
OUTSIDE_NOTHING = {AskPolicy, AskReadIndex, Confirm, Refuse, Send}
"""Effects that change nothing outside, or, of ``Send``, whose actions have rows of their own."""


def listed() -> set[str]:
    return {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}


def test_every_action_and_effect_that_changes_something_outside_is_in_the_audit() -> None:
    wanted = {kind.__name__ for kind in (*ServerAction.__args__, *Effect.__args__) if kind not in OUTSIDE_NOTHING}
    assert wanted - listed() == set()


def test_every_fence_of_a_deletion_is_in_the_audit() -> None:
    fences = {kind.__name__ for kind in get_args(get_type_hints(DeleteReplica)["fence"])}
    assert fences
    assert fences - listed() == set()


def test_every_row_has_a_fence_and_names_a_test_that_exists() -> None:
    assert ROWS
    for action, _, fence, test in ROWS:
        assert fence, action
        path, _, name = test.strip("`").partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test
