"""The members of a consensus group: its config, and the changes that can be asked for."""

from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

import msgspec

from stelae.spi.errors import Corrupt
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry


class MemberType(StrEnum):
    """The function of a member in its config."""

    VOTER = "VOTER"
    PRE_VOTER = "PRE_VOTER"  #: A learner that the leader promotes once it has caught up.
    NON_VOTER = "NON_VOTER"  #: A learner that stays one.
    #: A learner whose replica has the log only, and no rows. The leader makes it a ``WITNESS`` once it has caught up.
    PRE_WITNESS = "PRE_WITNESS"
    #: It votes and keeps the log, and serves no requests. The leader makes it a ``VOTER`` once it has all rows.
    WITNESS = "WITNESS"


VOTING = (MemberType.VOTER, MemberType.WITNESS)
"""The types of the members that count towards a majority."""

JOINING = (MemberType.PRE_VOTER, MemberType.NON_VOTER, MemberType.PRE_WITNESS)
"""The types that a member can have when it is added. It has no vote."""

PROMOTED = {MemberType.PRE_VOTER: MemberType.VOTER, MemberType.PRE_WITNESS: MemberType.WITNESS}
"""What a leader makes of a member by itself once its log has caught up."""


def may_have_become(added_as: MemberType, now: MemberType) -> bool:
    """Return whether a member of type ``now`` may be one that was added as ``added_as`` and was promoted since."""
    promoted = PROMOTED.get(added_as)
    return promoted is not None and now in (promoted, MemberType.VOTER)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a config; ``address`` is its last known ``host:port``."""

    node_id: NodeId
    address: str
    member_type: MemberType = MemberType.VOTER
    #: Set for a member that was a ``VOTER``, until it votes again: it has given votes and acknowledged entries
    #: (``durability.md`` rule 19). If it returns, a witness waits for a time before it copies the rows.
    was_voter: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    #: Set for a member that an operator added: the masters keep one member more while a config has it. The removal of
    #: a voter ends that, so that the two changes together replace a member.
    pinned: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    #: The member whose place this one takes, for a move. The masters remove that one once this member is a ``VOTER``.
    #: The config in which that one is removed does not have the mark any more.
    replaces: NodeId | msgspec.UnsetType = msgspec.UNSET


class TabletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a consensus group."""

    #: The op id of the entry that contains the config: the compare-and-set id of config changes. It is ``OpId(0, 0)``
    #: for an initial config that is not in an entry yet.
    op_id: OpId
    #: Sorted by node id.
    members: tuple[Member, ...]
    #: Nodes that are no members and had a vote once, sorted. One that is added again has the mark ``was_voter``: it has
    #: given votes and acknowledged entries that an empty replica would not know (``durability.md`` rule 19).
    former_voters: tuple[NodeId, ...] = ()

    def voters(self) -> tuple[NodeId, ...]:
        """Return the node ids of the members that count towards a majority."""
        return tuple(m.node_id for m in self.members if m.member_type in VOTING)

    def learners(self) -> tuple[NodeId, ...]:
        """Return the node ids of the members that have no vote."""
        return tuple(m.node_id for m in self.members if m.member_type not in VOTING)

    def member(self, node_id: NodeId) -> Member | None:
        """Return the member with that node id, or ``None``."""
        return next((m for m in self.members if m.node_id == node_id), None)


def encode_config(config: TabletConfig) -> bytes:
    """Return the body of a ``CONFIG`` entry. The op id is not part of it: the entry has it.

    The body is the list of members; with former voters, a map of both."""
    if not config.former_voters:
        return msgspec.msgpack.encode(config.members)
    return msgspec.msgpack.encode(_Body(members=config.members, former_voters=config.former_voters))


def decode_config(entry: Entry) -> TabletConfig:
    """Return the config in a ``CONFIG`` entry. Raises ``Corrupt`` if the body is not a config."""
    try:
        body = _BODIES.decode(entry.body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"entry {entry.op_id} does not contain a config: {error}") from error
    if isinstance(body, _Body):
        return TabletConfig(op_id=entry.op_id, members=body.members, former_voters=body.former_voters)
    return TabletConfig(op_id=entry.op_id, members=body)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    members: tuple[Member, ...]
    former_voters: tuple[NodeId, ...]


_BODIES = msgspec.msgpack.Decoder(tuple[Member, ...] | _Body)


def former_voters(before: TabletConfig, members: tuple[Member, ...]) -> tuple[NodeId, ...]:
    """Return the former voters of the config that follows ``before`` and has ``members``."""
    now = {member.node_id for member in members}
    voted = {m.node_id for m in before.members if m.member_type in VOTING or m.was_voter is True}
    return tuple(sorted((voted | set(before.former_voters)) - now))


class AddServer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Add a member. A new member does not vote: ``member_type`` is one of ``JOINING``."""

    node_id: NodeId
    address: str
    member_type: MemberType = MemberType.PRE_VOTER
    pinned: bool = False  #: See ``Member.pinned``.
    replaces: NodeId | None = None  #: See ``Member.replaces``. It may be given for a member, too.


class RemoveServer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Remove a member. A leader that is asked to remove itself hands over its leadership instead."""

    node_id: NodeId


class ChangeRole(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Change the type of a member. A member gets a vote only once it has caught up."""

    node_id: NodeId
    member_type: MemberType


MemberChange: TypeAlias = AddServer | RemoveServer | ChangeRole
"""One change of a config. Majorities before and after it always overlap (Raft thesis, 4.1)."""


def change_text(change: MemberChange) -> str:
    """Return a change in words."""
    match change:
        case AddServer():
            place = f" in place of node {change.replaces}" if change.replaces else ""
            return f"add {change.address} ({change.node_id}) as {change.member_type}{place}"
        case RemoveServer():
            return f"remove node {change.node_id}"
        case ChangeRole():
            return f"make node {change.node_id} {change.member_type}"
        case _:
            assert_never(change)
