"""The kinds of messages between nodes: all that the product has, and those that arrive in a run.

A name is ``message.`` and the kind. Consensus messages have the kinds that their engine gave them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import stelae
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, PeerTraffic
from stelae.protocol.master_heartbeats import HEARTBEAT
from stelae.protocol.masters_messages import MASTERS
from stelae.sim.engines import SimEngines
from stelae.sim.node_links import NodeLink
from stelae.sim.profile import ProfileKind

ROOT = Path(stelae.__path__[0])

SENDERS = ("host", "lifecycle", "server/tserver")
"""The packages whose nodes send messages to each other."""

OF_MASTERS = {HEARTBEAT, MASTERS}
"""Requests of nodes to masters. ``tests/sim/masters`` has their floors."""

UNREACHABLE = {
    "message.cancel_copy": "a leader cancels copies to witnesses, and no run has both copies and witnesses; "
    "'message.CancelCopy' counts the sending, tests/unit/tserver/test_copy_target.py has the arrival",
    "message.first_schema": "all replicas of a run are created with the same schema; "
    "tests/unit/lifecycle/test_first_schema.py has replicas with different ones",
}
"""Messages that arrive in no run: the reason, and the test that shows them. A run that shows one fails the test."""

_ARRIVALS = {BEAT: "beat_arrived", BEAT_ACK: "beat_ack_arrived", REMOVED: "removed_arrived"}
"""The methods of ``PeerTraffic`` that handle messages."""


def message_name(kind: str) -> str:
    """Return the name of a kind of message."""
    return f"message.{kind}"


def message_names() -> set[str]:
    """Return the names of all messages between nodes that host replicas.

    ``ValueError``: a kind in the code is no constant of its module."""
    paths = [path for package in SENDERS for path in sorted((ROOT / package).rglob("*.py"))]
    kinds = {kind for path in paths for kind in kinds_in(path, _constants_of(path))}
    for consensus in {profile.consensus for profile in ProfileKind}:
        kinds |= set(SimEngines.installed(consensus).consensus.message_types)
    return {message_name(kind) for kind in kinds - OF_MASTERS - {CONSENSUS}}


def _constants_of(path: Path) -> Mapping[str, object]:
    return vars(importlib.import_module(".".join(("stelae", *path.relative_to(ROOT).with_suffix("").parts))))


def kinds_in(path: Path, constants: Mapping[str, object]) -> Iterator[str]:
    """Yield the kinds of messages that a module handles, and those of the requests that it sends.

    ``ValueError``: a kind is none of the module's constants."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "on_message":
            name = node.args[0]
        elif node.func.attr == "call" and any(keyword.arg == "deadline_ms" for keyword in node.keywords):
            name = node.args[1]
        else:
            continue
        kind = constants.get(name.id) if isinstance(name, ast.Name) else None
        if not isinstance(kind, str):
            raise ValueError(f"{path}:{name.lineno}: name the kind of the message by a constant of the module")
        yield kind


def note_messages(patch: pytest.MonkeyPatch, names: set[str]) -> None:
    """Add the names of the messages that a node handles."""
    decode, on_message = PeerCodec.decode, NodeLink.on_message

    def decoded(self: Any, frames: Any) -> Any:
        message = decode(self, frames)
        names.add(message_name(message.kind))
        return message

    def registered(self: Any, kind: str, handler: Callable[[Any], None]) -> None:
        on_message(self, kind, _noted(kind, handler, names))

    patch.setattr(PeerCodec, "decode", decoded)
    patch.setattr(NodeLink, "on_message", registered)
    for kind, method in _ARRIVALS.items():
        patch.setattr(PeerTraffic, method, _noted(kind, getattr(PeerTraffic, method), names))


def _noted(kind: str, handler: Callable[..., None], names: set[str]) -> Callable[..., None]:
    def handled(*arguments: Any) -> None:
        names.add(message_name(kind))
        handler(*arguments)

    return handled
