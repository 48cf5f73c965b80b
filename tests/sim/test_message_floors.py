"""Every kind of message between nodes that host replicas has a floor in some profile, or a reason why it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import floors, messages, test_copy_floors, test_member_floors

FLOORS = (
    floors.OTHERS | test_member_floors.OFTEN | test_member_floors.RARE | test_copy_floors.OFTEN | test_copy_floors.RARE
)

SENDINGS = {"message.CancelCopy"}
"""Counted by the simulator when a message is sent. All other floors of messages are about their arrival."""


def test_every_message_between_nodes_has_a_floor_or_a_reason() -> None:
    assert messages.message_names() - FLOORS - set(messages.UNREACHABLE) == set()


def test_the_floors_and_reasons_of_messages_are_about_messages_of_the_product() -> None:
    named = {name for name in FLOORS if name.startswith("message.")} - SENDINGS
    assert named | set(messages.UNREACHABLE) <= messages.message_names()
    assert not named & set(messages.UNREACHABLE)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("node.messenger.on_message(NEW, handler)", {"new"}),
        ("call = messenger.call(to, NEW, [body], deadline_ms=10)", {"new"}),
        ("calls.call(begin)", set()),
    ],
)
def test_the_kinds_of_messages_are_read_from_the_code(tmp_path: Path, line: str, kinds: set[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(line, encoding="utf-8")
    assert set(messages.kinds_in(path, {"NEW": "new"})) == kinds


@pytest.mark.parametrize("line", ["link.on_message('new', handler)", "link.on_message(kind, handler)"])
def test_a_kind_that_is_no_constant_of_its_module_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(ValueError, match="by a constant of the module"):
        list(messages.kinds_in(path, {"NEW": "new"}))
