"""Decides how a stopped node may rewrite the config of a tablet of which it is the only voter. Pure.

Source: "Permanent failure handling of masters", *Migration from single-master deployments*, step 6. There, a tool
replaces the config in the consensus metadata. Here, the same config is reached by changes that are entries of the log,
as for a running node (ADR 84): metadata alone would contradict the log, and other replicas would never learn of them.

The only voter is its own majority, so each change commits on this node alone. It stays the only voter: a new member
has no vote until the leader has seen that it has the log. So nothing that was acknowledged is lost, even if the new
members fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stelae.spi.errors import MemberChangeRefused
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import VOTING, AddServer, Member, MemberChange, RemoveServer, TabletConfig

UNCHANGED = "nothing was changed"


class WantedMember(NamedTuple):
    """One member of the config that is asked for."""

    node_id: NodeId
    address: str  #: ``host:port`` at which every node reaches it; a name is resolved again at each connection.


def changes_to(
    wanted: Sequence[WantedMember], own: NodeId, config: TabletConfig, committed: TabletConfig
) -> list[MemberChange]:
    """Return the changes that lead to the wanted members, in order; none if the config has them already.

    Removals come first, so that a new member may have the address of one that is removed.

    Args:
        wanted: all members, this node among them.
        own: this node.
        config: the config in force here.
        committed: the committed config. Its op id is 0.0 if the tablet never had a leader.

    Raises:
        MemberChangeRefused: the config must not be rewritten here, or not in this way. The message says what to do.
    """
    if reason := _not_ours(own, config, committed) or _not_a_config(wanted, own) or _had_a_vote(wanted, own, config):
        raise MemberChangeRefused(f"{reason}; {UNCHANGED}")
    names = {member.node_id for member in wanted}
    changes: list[MemberChange] = [RemoveServer(node_id=m.node_id) for m in config.members if m.node_id not in names]
    for node_id, address in wanted:
        member = config.member(node_id)
        if member is None or member.address != address:
            changes.append(AddServer(node_id=node_id, address=address))
    return changes


def _not_ours(own: NodeId, config: TabletConfig, committed: TabletConfig) -> str:
    """Return why this node cannot change the config alone; empty if it can."""
    if config.member(own) is None:
        return f"config {config.op_id} does not list this node {own}: it was removed; rewrite a member, or add it again"
    others = {m.node_id: m for one in (committed, config) for m in one.members if _votes(m) and m.node_id != own}
    if others:
        named = ", ".join(f"{member.address} ({node_id})" for node_id, member in sorted(others.items()))
        fact = f"config {config.op_id} has other voters: {named}. They may have acknowledged what is not here"
        steps = "change the members while they run: stelae master add, remove, replace"
        return f"{fact}; {steps}. If a majority is lost for good, only a recovery helps: stelae recover plan --masters"
    if committed.op_id == ZERO:
        return "this node never led, so its cluster has not begun: list the masters that begin it in [masters] instead"
    return ""


def _votes(member: Member) -> bool:
    return member.member_type in VOTING


def _not_a_config(wanted: Sequence[WantedMember], own: NodeId) -> str:
    """Return why the members that are asked for are no config; empty if they are one."""
    for what, values in (("uuid", [m.node_id for m in wanted]), ("address", [m.address for m in wanted])):
        value, count = max(Counter(values).items(), key=lambda item: item[1], default=("", 0))
        if count > 1:
            return f"{what} {value} is given {count} times; each member has its own"
    if own not in {member.node_id for member in wanted}:
        return f"this node {own} is not among the members; name all of them, as UUID=HOST:PORT"
    if len(wanted) % 2 == 0:
        fact = f"{len(wanted)} masters tolerate no more failures than {len(wanted) - 1}"
        return f"{fact}: name one more, or one less"
    return ""


def _had_a_vote(wanted: Sequence[WantedMember], own: NodeId, config: TabletConfig) -> str:
    """Return which new member has, or had, a vote (``durability.md`` rules 19 and 31); empty if none has."""
    marked = {member.node_id for member in config.members if member.was_voter is True and member.node_id != own}
    voted = sorted({member.node_id for member in wanted} & ({*config.former_voters} | marked))
    if not voted:
        return ""
    fact = f"node {voted[0]} had a vote once, and a new directory does not know what it has promised"
    return f"{fact}; format a directory with a new uuid for its replacement, which may have its address"
