"""The config of a tablet as text and as plain values, for ``stelae tablet config`` and related commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stelae.check.fault_tolerance import tolerance_text
from stelae.cli.kit.terminal_layout import print_facts, print_fitted
from stelae.client import ChangeResult
from stelae.client.member_goals import copy_text, lag_text
from stelae.protocol.member_messages import ConfigView
from stelae.spi.ids import NodeId
from stelae.spi.members import Member, TabletConfig


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node, and its address or the name that the user gave; empty if neither is known. As text it is both."""

    node_id: NodeId
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.node_id})" if self.name not in ("", self.node_id) else f"node {self.node_id}"


def print_view(view: ConfigView) -> None:
    """Print a config for people."""
    asked = view.config.member(view.node_id)
    source = asked.address if asked is not None else view.node_id
    leads = view.role == "LEADER"
    print_facts(
        {
            "tablet": view.tablet_id,
            "config id": view.committed.op_id,
            "leader": source if leads else "none answers",
            "told by": "" if leads else f"{source}, a {view.role}; its config may be old",
            "pending": f"config {view.config.op_id}: {_difference(view)}" if view.change_pending else "",
            "faults": tolerance_text([member.member_type for member in view.config.members]),
            "demoted": _demoted(view),
        }
    )
    print()
    rows = [
        (member.address, _type(member, view.config), _role(member, view), _log(member, view), member.node_id)
        for member in view.config.members
    ]
    print_fitted(("MEMBER", "TYPE", "ROLE", "LOG", "NODE"), rows)


def _type(member: Member, config: TabletConfig) -> str:
    """Return the type of a member, and its marks."""
    pinned = ", pinned" if member.pinned is True else ""
    place = "" if member.replaces is msgspec.UNSET else f", replaces {_address(member.replaces, config)}"
    return f"{member.member_type}{pinned}{place}"


def _address(node_id: NodeId, config: TabletConfig) -> str:
    member = config.member(node_id)
    return node_id if member is None else member.address


def _role(member: Member, view: ConfigView) -> str:
    return "leader" if member.node_id == view.leader else "follower" if member.node_id in view.config.voters() else "-"


def _log(member: Member, view: ConfigView) -> str:
    """Return the last entry that the leader knows the member to hold, as text."""
    if member.node_id == view.node_id:
        return f"entry {view.last.index}"
    known = {one.node_id: one for one in view.progress}.get(member.node_id)
    if known is None:
        return "-"
    if known.state == "COPY":
        return copy_text(member, view).partition(":")[0]
    return f"entry {known.match_index} of {view.last.index}" + (", no rows" if known.log_only else "")


def _demoted(view: ConfigView) -> str:
    """Return the advice for demoted voters that follow the leader while a witness waits to copy the rows, or ''."""
    progress = {one.node_id: one for one in view.progress if one.state == "REPLICATE"}
    if not any(one.log_only for one in progress.values()):
        return ""
    back = [one for one in view.config.members if one.was_voter is True and one.node_id in progress]
    names = ", ".join(one.address for one in back if not progress[one.node_id].log_only)
    if not names:
        return ""
    what = "was a VOTER and follows the leader, so a witness copies the rows after 10 minutes only"
    return f"{names} {what}; to give back the vote: stelae tablet change-role {view.tablet_id} NODE VOTER"


def _difference(view: ConfigView) -> str:
    """Return in words how the pending config differs from the committed one."""
    before = {member.node_id: member for member in view.committed.members}
    after = {member.node_id: member for member in view.config.members}
    parts = [f"adds {m.address} as {_type(m, view.config)}" for node, m in after.items() if node not in before]
    parts += [f"removes {m.address}" for node, m in before.items() if node not in after]
    for node, member in after.items():
        old = before.get(node, member)
        if old.member_type is not member.member_type:
            parts.append(f"makes {member.address} {member.member_type}")
        if old.address != member.address:
            parts.append(f"moves {old.address} to {member.address}")
        if node in before and old.replaces != member.replaces is not msgspec.UNSET:
            parts.append(f"replaces {_address(member.replaces, view.config)} by {member.address}")
    return ", ".join(parts)


def changed_text(node: NamedNode, result: ChangeResult) -> str:
    """Return what a command has done, in one sentence."""
    member = result.view.config.member(node.node_id)
    name = NamedNode(node.node_id, member.address) if member is not None else node
    verb = "done" if result.changed else "nothing to do"
    return f"{verb}: {name} is {lag_text(node.node_id, result.view)}"


def plain_view(view: ConfigView) -> dict[str, Any]:
    """Return a config as plain values."""
    return {
        "tablet_id": view.tablet_id,
        "config_id": str(view.committed.op_id),
        "leader": view.leader,
        "term": view.term,
        "told_by": view.node_id,
        "role": view.role,
        "last": str(view.last),
        "log_base": str(view.log_base),
        "pending": str(view.config.op_id) if view.change_pending else None,
        "faults": tolerance_text([member.member_type for member in view.config.members]),
        "members": _plain_members(view.config, view),
        "committed_members": _plain_members(view.committed, view),
    }


def _plain_members(config: TabletConfig, view: ConfigView) -> list[dict[str, Any]]:
    progress = {one.node_id: one for one in view.progress}
    return [
        {
            "node_id": member.node_id,
            "address": member.address,
            "type": member.member_type.value,
            "match_index": progress[member.node_id].match_index if member.node_id in progress else None,
            "progress": progress[member.node_id].state if member.node_id in progress else None,
            "pinned": member.pinned is True,
            "replaces": None if member.replaces is msgspec.UNSET else member.replaces,
            "log_only": progress[member.node_id].log_only if member.node_id in progress else None,
        }
        for member in config.members
    ]
