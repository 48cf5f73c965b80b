"""The rules of a change of config: which members the new config has, and which changes are refused, with the reason.

One change adds, removes, promotes or demotes one member, so every majority of the new config overlaps every majority
of the old one (Raft thesis, 4.1). A member that is added has no vote at first (durability rule 11): otherwise commits
could wait for it until it has all of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

import msgspec

from stelae.spi.ids import NodeId
from stelae.spi.members import (
    JOINING,
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
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.quorum import majority_of

_MAY_BECOME = {
    MemberType.VOTER: (MemberType.NON_VOTER,),
    MemberType.PRE_VOTER: (MemberType.NON_VOTER, MemberType.VOTER),
    MemberType.NON_VOTER: (MemberType.PRE_VOTER, MemberType.VOTER),
    MemberType.PRE_WITNESS: (MemberType.WITNESS,),
    MemberType.WITNESS: (MemberType.VOTER,),
}
"""The types that a member of each type can get by one change."""

_WITNESSES = (MemberType.PRE_WITNESS, MemberType.WITNESS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a change is refused. ``detail`` says what is, and after a semicolon what to do next."""

    reason: RejectReason
    detail: str


def changed_members(config: TabletConfig, change: MemberChange) -> tuple[Member, ...] | Refusal:
    """Return the members after a change, sorted by node id, or why the config does not allow the change."""
    member = config.member(change.node_id)
    match change:
        case AddServer():
            return _added(config, member, change)
        case RemoveServer():
            if member is None:
                return Refusal(RejectReason.NO_CHANGE, f"node {change.node_id} is not a member; nothing to remove")
            return _without(config, member)
        case ChangeRole():
            return _retyped(config, member, change)
        case _:
            assert_never(change)


def _added(config: TabletConfig, member: Member | None, change: AddServer) -> tuple[Member, ...] | Refusal:
    node, wanted = change.node_id, change.member_type
    if wanted not in JOINING:
        first = MemberType.PRE_WITNESS if wanted is MemberType.WITNESS else MemberType.PRE_VOTER
        fact = f"node {node} was to be added as {wanted}, but a new member has no vote"
        return Refusal(RejectReason.WRONG_MEMBER_TYPE, f"{fact}; add it as {first}, and the leader promotes it")
    if member is None:
        return _joined(config, change)
    if member.member_type is not wanted and not may_have_become(wanted, member.member_type):
        fact = f"node {node} is a member already, as {member.member_type}, and was to be added as {wanted}"
        return Refusal(RejectReason.WRONG_MEMBER_TYPE, f"{fact}; {_way_to(member.member_type, wanted)}")
    known = _with(config, msgspec.structs.replace(member, address=change.address))
    if change.replaces is not None and change.replaces != node and config.member(change.replaces) is not None:
        known = _replacing(known, node, change.replaces)
    if known != config.members:
        return known
    return Refusal(RejectReason.NO_CHANGE, f"node {node} is {member.member_type} already; nothing to add")


def _joined(config: TabletConfig, change: AddServer) -> tuple[Member, ...] | Refusal:
    node, replaced = change.node_id, change.replaces
    if replaced is not None and config.member(replaced) is None:
        fact = f"node {node} was to take the place of node {replaced}, which is not a member"
        return Refusal(RejectReason.NOT_A_MEMBER, f"{fact}; look at the config again, then decide")
    pinned: Literal[True] | msgspec.UnsetType = True if change.pinned else msgspec.UNSET
    new = Member(
        node_id=node,
        address=change.address,
        member_type=change.member_type,
        was_voter=True if node in config.former_voters else msgspec.UNSET,
        pinned=pinned,
        replaces=msgspec.UNSET if replaced is None else replaced,
    )
    return tuple(sorted((*config.members, new), key=lambda m: m.node_id))


def _replacing(members: tuple[Member, ...], node: NodeId, replaced: NodeId) -> tuple[Member, ...]:
    """Return the members after a move to ``node``, which is one of them.

    If ``replaced`` was to take the place of that node, that move is turned back: no two members replace each other."""
    found = []
    for member in members:
        if member.node_id == node:
            member = msgspec.structs.replace(member, replaces=replaced)
        elif member.node_id == replaced and member.replaces == node:
            member = msgspec.structs.replace(member, replaces=msgspec.UNSET)
        found.append(member)
    return tuple(found)


def _way_to(present: MemberType, wanted: MemberType) -> str:
    """Return how a member of the first type gets the second one."""
    possible = _MAY_BECOME[present]
    if wanted in possible:
        return f"change its role to {wanted} instead"
    if wanted in _WITNESSES:
        return "remove it, then add it as a witness"
    if present in _WITNESSES:
        return "wait: the leader makes it a VOTER once it has all rows"
    return f"first make it one of: {', '.join(possible)}"


def _retyped(config: TabletConfig, member: Member | None, change: ChangeRole) -> tuple[Member, ...] | Refusal:
    node, wanted = change.node_id, change.member_type
    if member is None:
        names = ", ".join(str(m.node_id) for m in config.members)
        return Refusal(RejectReason.NOT_A_MEMBER, f"node {node} is not a member; add it first. Members: {names}")
    if member.member_type is wanted:
        return Refusal(RejectReason.NO_CHANGE, f"node {node} is {wanted} already; nothing to change")
    if wanted not in _MAY_BECOME[member.member_type]:
        fact = f"node {node} is {member.member_type} and cannot become {wanted} in one change"
        return Refusal(RejectReason.WRONG_MEMBER_TYPE, f"{fact}; {_way_to(member.member_type, wanted)}")
    demoted = member.member_type is MemberType.VOTER and wanted is MemberType.NON_VOTER
    # The mark stays until the member votes again: until then, an empty replica must not replace a lost one.
    was_voter = True if demoted else msgspec.UNSET if wanted in VOTING else member.was_voter
    return _with(config, msgspec.structs.replace(member, member_type=wanted, was_voter=was_voter))


def _without(config: TabletConfig, member: Member) -> tuple[Member, ...]:
    """Return the members without one.

    A member that replaces it gets its marks. Otherwise a voter that goes makes room for a member that an operator has
    added: that one is not pinned any more."""
    rest = tuple(m for m in config.members if m != member)
    heirs = [m for m in rest if m.replaces == member.node_id]
    if heirs:
        known = {heir.node_id: msgspec.structs.replace(heir, replaces=msgspec.UNSET) for heir in heirs}
        first = heirs[0].node_id
        place = msgspec.UNSET if member.replaces == first else member.replaces
        known[first] = msgspec.structs.replace(heirs[0], pinned=member.pinned, replaces=place)
        return tuple(known.get(m.node_id, m) for m in rest)
    frees = (member.member_type in VOTING or member.was_voter is True) and member.pinned is msgspec.UNSET
    freed = next((m for m in rest if m.pinned is True), None) if frees else None
    if freed is None:
        return rest
    return tuple(msgspec.structs.replace(m, pinned=msgspec.UNSET) if m is freed else m for m in rest)


def _with(config: TabletConfig, changed: Member) -> tuple[Member, ...]:
    return tuple(changed if m.node_id == changed.node_id else m for m in config.members)


def gets_vote(config: TabletConfig, members: tuple[Member, ...]) -> NodeId | None:
    """Return the node that votes among ``members`` and does not in ``config``, or ``None``."""
    before = set(config.voters())
    return next((m.node_id for m in members if m.member_type in VOTING and m.node_id not in before), None)


def leaderless(config: TabletConfig, members: tuple[Member, ...]) -> Refusal | None:
    """Refuse members of which none may lead."""
    if any(m.member_type is MemberType.VOTER for m in members):
        return None
    rest = ", ".join(f"{m.node_id} as {m.member_type}" for m in members) or "no member at all"
    fact = f"no VOTER would be left, so the tablet could never have a leader again: {rest}"
    return Refusal(RejectReason.LEADERLESS, f"{fact}; {_way_to_a_voter([m for m in members if m in config.members])}")


def _way_to_a_voter(members: list[Member]) -> str:
    """Return what makes a VOTER of one of the members that a change leaves as they are."""
    joining = next((m for m in members if m.member_type is not MemberType.NON_VOTER), None)
    if joining is not None:
        return f"wait until node {joining.node_id} is a VOTER"
    if members:
        return f"make node {members[0].node_id} a VOTER first"
    return "add another member and wait until it is a VOTER"


def without_live_majority(members: tuple[Member, ...], is_live: Callable[[NodeId], bool]) -> Refusal | None:
    """Refuse members of which no majority can acknowledge entries now: the change might never be committed."""
    voters = [m.node_id for m in members if m.member_type in VOTING]
    silent = [node for node in voters if not is_live(node)]
    majority = majority_of(len(voters))
    if len(voters) - len(silent) >= majority:
        return None
    names = ", ".join(silent)
    fact = f"the new config needs {majority} of {len(voters)} voters, but these do not answer or need a copy: {names}"
    return Refusal(RejectReason.NO_LIVE_MAJORITY, f"{fact}; start them, wait for their copies, or remove them first")


def rows_at_risk(
    before: TabletConfig,
    members: tuple[Member, ...],
    has_reached: Callable[[NodeId], bool],
    is_silent: Callable[[NodeId], bool],
) -> Refusal | None:
    """Refuse a change after which the loss of a minority might leave no VOTER that can get all committed entries.

    The log of a witness begins late. It cannot bring a VOTER up to date whose log ends before it. So if a VOTER has not
    reached that point, enough others must have: more than the voters whose loss the new config bears. Only changes with
    fewer VOTERs or more witnesses can take that away. One that lags may go while all others that lag are silent: they
    may be down for good, and would keep each other from being removed.

    Args:
        has_reached: returns true if the log of a VOTER reaches the op ids at which the logs of the witnesses begin.
        is_silent: returns true if a VOTER does not answer.
    """
    rows_before, witnesses_before = _votes_of(before.members)
    rows, witnesses = _votes_of(members)
    if not witnesses or (rows >= rows_before and witnesses <= witnesses_before):
        return None
    behind = [node for node in sorted(rows) if not has_reached(node)]
    voters = len(rows) + len(witnesses)
    losable = voters - majority_of(voters)
    if not behind or len(rows) - len(behind) > losable:
        return None
    if witnesses <= witnesses_before and not any(map(has_reached, rows_before - rows)) and all(map(is_silent, behind)):
        return None
    fact = (
        f"the logs of these voters end before that of a witness begins: {', '.join(behind)}. If {losable} of the other "
        "voters were lost, no member could bring them up to date"
    )
    return Refusal(RejectReason.NOT_CAUGHT_UP, f"{fact}; wait until they have caught up, or remove them first")


def _votes_of(members: tuple[Member, ...]) -> tuple[frozenset[NodeId], frozenset[NodeId]]:
    """Return the VOTERs and the WITNESSes."""
    with_rows = frozenset(m.node_id for m in members if m.member_type is MemberType.VOTER)
    return with_rows, frozenset(m.node_id for m in members if m.member_type is MemberType.WITNESS)
