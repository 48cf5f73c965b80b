"""Decides whether the config of a tablet is as an operator wants it. No input or output.

A change may be asked for again after its outcome was unknown, or by somebody who does not know that it was made. So
every command first compares the config with what it wants, and asks for nothing that holds already."""

from __future__ import annotations

from typing import assert_never

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView, MemberProgress
from stelae.spi.errors import MemberChangeRefused
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import (
    VOTING,
    AddServer,
    ChangeRole,
    Member,
    MemberChange,
    MemberType,
    RemoveServer,
    TabletConfig,
    may_have_become,
)


def is_made(change: MemberChange, config: TabletConfig) -> bool:
    """Return whether a config is as it would be after a change.

    A ``PRE_VOTER`` that was promoted since is as it was asked for."""
    member = config.member(change.node_id)
    match change:
        case AddServer():
            if member is None or member.address != change.address:
                return False
            return _is_type(member.member_type, change.member_type) and _has_place(change, config)
        case RemoveServer():
            return member is None
        case ChangeRole():
            return member is not None and _is_type(member.member_type, change.member_type)
        case _:
            assert_never(change)


def _is_type(found: MemberType, wanted: MemberType) -> bool:
    return found is wanted or may_have_become(wanted, found)


def _has_place(change: AddServer, config: TabletConfig) -> bool:
    """Return whether the mark of a move is set, or the member that is to be replaced has gone."""
    member = config.member(change.node_id)
    if change.replaces is None or config.member(change.replaces) is None:
        return True
    return member is not None and member.replaces == change.replaces


def check_move(config: TabletConfig, tablet_id: TabletId, source: NodeId, target: NodeId) -> None:
    """Check that a replica can be moved from one node to another, or is being moved.

    Raises ``MemberChangeRefused`` with the reason and the next step."""
    old, new = config.member(source), config.member(target)
    if source == target:
        raise MemberChangeRefused(f"the replica is on node {source} already; choose another node to move it to")
    if old is None and new is None:
        fact = f"node {source} has no replica of tablet {tablet_id}"
        raise MemberChangeRefused(f"{fact}; see its members: stelae tablet config {tablet_id}")
    if old is None or (new is not None and new.replaces == source):
        return
    if old.member_type is MemberType.NON_VOTER:
        way = f"stelae tablet add-replica {tablet_id} HOST:PORT --type NON_VOTER, then remove this one"
        raise MemberChangeRefused(f"the replica on node {source} never votes, and a move makes a voter; instead: {way}")
    if (other := next((m for m in config.members if m.replaces == source), None)) is not None:
        fact = f"the replica on node {source} is being moved to {other.address}"
        way = f"stelae tablet remove-replica {tablet_id} {other.address}"
        raise MemberChangeRefused(f"{fact}; wait for that, or end it first: {way}")
    voters = config.voters()
    if {source, target} <= {*voters} and len(voters) % 2 and old.replaces != target:
        fact = f"node {target} has a replica of the tablet with a vote already, so nothing can be moved to it"
        way = f"the tablet would have {len(voters) - 1} voters then"
        raise MemberChangeRefused(f"{fact}; choose another node, or remove the replica: {way}")


def is_promoted(node_id: NodeId, view: ConfigView) -> bool:
    """Return whether a committed config gives a member a vote."""
    member = view.committed.member(node_id)
    return member is not None and member.member_type in VOTING


def lag_text(node_id: NodeId, view: ConfigView) -> str:
    """Return in words how far a member has caught up with the log of the leader that gave the view."""
    member = view.config.member(node_id)
    known = next(iter(_progress(node_id, view)), None)
    if member is None:
        return "not a member"
    if known is None:
        leads = node_id == view.node_id and view.role == "LEADER"
        return f"{member.member_type}, leads in term {view.term}" if leads else member.member_type.value
    if known.state == "COPY":
        return f"{member.member_type}, {copy_text(member, view)}"
    rows = ", without rows" if known.log_only else ""
    return f"{member.member_type}, has entry {known.match_index} of {view.last.index}{rows}"


def _progress(node_id: NodeId, view: ConfigView) -> list[MemberProgress]:
    return [one for one in view.progress if one.node_id == node_id]


def unfinished_text(node_id: NodeId, replaced: NodeId | None, view: ConfigView) -> str:
    """Return what a new member waits for, what goes on by itself, and that the command can be repeated."""
    ending = "the command can be repeated to wait on"
    if is_promoted(node_id, view):
        fact = f"node {node_id} has its vote, and node {replaced}, which it replaces, is still a member"
        how = "the masters remove it once a majority of the others is healthy; see why they wait: stelae policy explain"
        return f"{fact}; {how}. {ending.capitalize()}"
    then = "" if replaced is None else f", the masters then remove node {replaced}"
    fact = f"node {node_id} is not a voter yet: {lag_text(node_id, view)}"
    member = view.config.member(node_id)
    if member is not None and _is_former(member) and any(one.state == "COPY" for one in _progress(node_id, view)):
        return f"{fact}. Otherwise the leader goes on by itself{then}, and {ending}"
    return f"{fact}; the leader goes on by itself{then}, and {ending}"


def _is_former(member: Member) -> bool:
    """Return whether a member without a vote had one. The leader does not copy to a new directory of it."""
    return member.was_voter is True and member.member_type in (MemberType.PRE_VOTER, MemberType.NON_VOTER)


def copy_text(member: Member, view: ConfigView) -> str:
    """Return in words why a leader sends a member nothing from its log (state ``"COPY"``)."""
    if _is_former(member):
        step = "if it has lost that, remove this member, and add one with a new uuid"
        return f"needs a copy over its old replica, because it had a vote: {step}"
    if view.log_base != ZERO:
        return f"needs a copy: the leader's log begins behind entry {view.log_base}"
    if member.member_type in VOTING:
        return "has lost its replica: remove this member, and add one on another node"
    return "has no replica yet: the leader asks for one, or for a copy over the replica that was deleted there"


def wrong_config_text(found: OpId, meant_for: OpId | None) -> str:
    """Return why a change that is meant for another committed config is refused."""
    fact = f"the committed config is {found}, the change is meant for {meant_for}"
    return f"{fact}; look at the config again, then decide"


def config_text(config: TabletConfig) -> str:
    """Return the members of a config in words."""
    return ", ".join(f"{member.address} as {member.member_type}" for member in config.members)


def no_successor_text(view: ConfigView) -> str:
    """Return why no other member than the leader that gave the view could ever lead, or an empty text.

    A voter that is down could, once it is back."""
    others = [member for member in view.config.members if member.node_id != view.node_id]
    if any(member.member_type is MemberType.VOTER for member in others):
        return ""
    fact = f"{_name(view)} leads tablet {view.tablet_id} and is its only VOTER, so no other member can become leader"
    waiting = [member.address for member in others if member.member_type is MemberType.PRE_VOTER]
    if waiting:
        look = "stelae master list" if view.tablet_id == SYSTEM_TABLET else f"stelae tablet config {view.tablet_id}"
        return f"{fact}; wait until {waiting[0]} is a VOTER: {look}"
    learners = [member.address for member in others if member.member_type is MemberType.NON_VOTER]
    if learners:
        return f"{fact}; make one a voter first: stelae tablet change-role {view.tablet_id} {learners[0]} VOTER"
    if view.tablet_id == SYSTEM_TABLET:
        return f"{fact}; add a master first: stelae master add HOST:PORT --wait"
    return f"{fact}; add a replica first: stelae tablet add-replica {view.tablet_id} HOST:PORT --wait"


def _name(view: ConfigView) -> str:
    member = view.config.member(view.node_id)
    return member.address if member is not None else view.node_id
