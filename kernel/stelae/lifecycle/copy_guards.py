"""The guards of ``StartTabletCopy``: decides whether a node may begin a copy. Pure.

Source: the pseudo-code of "Auto-vivifying Tablet Copy protocol" in the tablet-copy design, in its order;
``durability.md`` rules 17 and 19. The pseudo-code deletes the replica before its last checks. Here every guard, the
free slot included, comes before the first effect, so a refused request changes no byte. The driver applies the guards
twice: when it has locked the tablet, and again before the first effect, because the term of the replica may rise
meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from stelae.host.start_copy import StartCopy
from stelae.lifecycle.deletion import LastOpId
from stelae.lifecycle.replaced_damage import AGAIN_US
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import VOTING
from stelae.spi.recovery_epoch import is_too_far_ahead


class TargetState(StrEnum):
    """The state of the tablet on the node that is asked to copy it."""

    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    DELETED = "DELETED"  #: A tombstone, or what an interrupted copy has left of one.
    COPYING = "COPYING"  #: A copy is in progress.
    READY = "READY"
    DAMAGED = "DAMAGED"  #: A replica that has failed because damage was found. What it acknowledged is known.
    OFFLINE = "OFFLINE"  #: Something of it is on this node, but it did not start.


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What the guards need to know of the node and of its tablet."""

    node_id: NodeId
    hosts_tables: bool  #: False for a master.
    consensus: str  #: Name of the node's consensus engine.
    state: TargetState
    why_offline: str = ""
    term: int = 0
    last: LastOpId = ZERO  #: The last op id of the log, or of the tombstone.
    config: OpId = ZERO  #: The op id of the committed config.
    removed: bool = False  #: The table of the tombstone was deleted for good.
    members: frozenset[NodeId] = frozenset()  #: The members that the node knows.
    leads: bool = False  #: The replica leads the tablet in ``term``.
    replaced_lately: bool = False  #: DAMAGED: it is itself the copy that has replaced a damaged replica not long ago.
    has_log_base: bool = False  #: READY: its log contains, or has collected, the entry at ``StartCopy.log_base``.
    operation: str = ""  #: Another operation on the tablet that is in progress.
    cancelled: bool = False  #: An operator has cancelled the copy, and it is not to begin again yet.
    paused: bool = False  #: An operator has paused the copy, or all copies to the node.
    slots_free: int = 1  #: The number of copies that the node may begin.


class CopyRefusalCode(StrEnum):
    """Why a copy is refused. The values are stable: they are names in metrics and reports."""

    INVALID_NAME = "INVALID_NAME"
    NOT_A_TABLET_SERVER = "NOT_A_TABLET_SERVER"
    OTHER_CONSENSUS_ENGINE = "OTHER_CONSENSUS_ENGINE"
    ALREADY_IN_PROGRESS = "ALREADY_IN_PROGRESS"
    OFFLINE = "OFFLINE"
    DAMAGED_AGAIN = "DAMAGED_AGAIN"
    REMOVED = "REMOVED"
    ILLEGAL_STATE = "ILLEGAL_STATE"
    LAST_OP_ID_UNKNOWN = "LAST_OP_ID_UNKNOWN"
    VOTER_WITHOUT_REPLICA = "VOTER_WITHOUT_REPLICA"
    BEGINS_WITHOUT_ROWS = "BEGINS_WITHOUT_ROWS"
    BAD_TERM = "BAD_TERM"
    TERM_TOO_HIGH = "TERM_TOO_HIGH"
    LEADS = "LEADS"
    OLD_CONFIG = "OLD_CONFIG"
    NOT_A_MEMBER = "NOT_A_MEMBER"
    OTHER_LAST_OP_ID = "OTHER_LAST_OP_ID"
    NOT_NEEDED = "NOT_NEEDED"
    BUSY = "BUSY"
    CANCELLED = "CANCELLED"
    PAUSED = "PAUSED"
    THROTTLED = "THROTTLED"
    # Of a source, not of a request (``copy_fences``).
    SOURCE_INCONSISTENT = "SOURCE_INCONSISTENT"
    SOURCE_BEHIND = "SOURCE_BEHIND"
    SOURCE_CONFIG_OLD = "SOURCE_CONFIG_OLD"
    SOURCE_REFUSED = "SOURCE_REFUSED"
    OTHER_STORE_ENGINE = "OTHER_STORE_ENGINE"
    TOO_LARGE = "TOO_LARGE"


class CopyRefusal(NamedTuple):
    """Why a copy is refused, and what to do next."""

    code: CopyRefusalCode
    reason: str

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


class Guard(NamedTuple):
    """One condition that refuses a copy."""

    code: CopyRefusalCode
    applies: Callable[[StartCopy, TargetFacts], bool]
    reason: Callable[[StartCopy, TargetFacts], str]


REPLACED = (TargetState.READY, TargetState.DAMAGED)
"""The states of tablets with a replica that a copy sets aside."""

_HELD = (TargetState.DELETED, *REPLACED)

_WITHOUT_REPLICA = (TargetState.DOES_NOT_EXIST, TargetState.DELETED)

GUARDS: tuple[Guard, ...] = (
    Guard(
        CopyRefusalCode.INVALID_NAME,
        lambda asked, here: asked.to != here.node_id,
        lambda asked, here: f"the request is for node {asked.to}, and this is node {here.node_id}; "
        "the leader must look up the address again",
    ),
    Guard(
        CopyRefusalCode.NOT_A_TABLET_SERVER,
        lambda _asked, here: not here.hosts_tables,
        lambda _asked, _here: "this node is a master, and masters host no replicas of tables; remove the member",
    ),
    Guard(
        CopyRefusalCode.OTHER_CONSENSUS_ENGINE,
        lambda asked, here: asked.consensus != here.consensus,
        lambda asked, here: f"the tablet has consensus engine {asked.consensus[:80]!r}, this node has "
        f"{here.consensus!r}; place the replica on another node",
    ),
    Guard(
        CopyRefusalCode.ALREADY_IN_PROGRESS,
        lambda _asked, here: here.state is TargetState.COPYING,
        lambda _asked, _here: "a copy of the tablet is in progress; wait for its end",
    ),
    Guard(
        CopyRefusalCode.BUSY,
        lambda _asked, here: bool(here.operation),
        lambda _asked, here: f"the tablet is being {here.operation}; ask again",
    ),
    Guard(
        CopyRefusalCode.LAST_OP_ID_UNKNOWN,
        lambda _asked, here: here.last == "UNKNOWN",
        lambda _asked, _here: "it is not known what this replica acknowledged, so it can never be a member again under "
        "the uuid of this node; remove it, and let the masters add another one",
    ),
    Guard(
        CopyRefusalCode.OFFLINE,
        lambda _asked, here: here.state is TargetState.OFFLINE,
        lambda _asked, here: f"the tablet is on this node but offline ({here.why_offline}); "
        "remove the member, or restart the node once the cause is removed",
    ),
    Guard(
        CopyRefusalCode.DAMAGED_AGAIN,
        lambda _asked, here: here.state is TargetState.DAMAGED and here.replaced_lately,
        lambda _asked, _here: "the replica is the copy that replaced a damaged one a short time ago, and is damaged "
        "again; look at the disk, and move the replica to another node; otherwise it is copied again "
        f"{AGAIN_US // 60_000_000} minutes after the last copy",
    ),
    Guard(
        CopyRefusalCode.REMOVED,
        lambda _asked, here: here.removed,
        lambda _asked, _here: "the table was deleted for good; the masters delete the other replicas, too",
    ),
    Guard(
        CopyRefusalCode.ILLEGAL_STATE,
        # A damaged replica that did not start looks to the leader like none.
        lambda asked, here: here.state is not TargetState.DAMAGED and asked.hosted != (here.state is TargetState.READY),
        lambda asked, here: f"the leader believes that this node {'has a' if asked.hosted else 'has no'} replica, "
        f"and the tablet is {here.state} here; the leader learns that from the next answer",
    ),
    Guard(
        CopyRefusalCode.VOTER_WITHOUT_REPLICA,
        lambda asked, here: here.state is TargetState.DOES_NOT_EXIST and asked.member_type in VOTING,
        lambda asked, _here: f"a {asked.member_type} without a replica may have lost votes and entries that it "
        "acknowledged; remove the member, and add another node",
    ),
    Guard(
        CopyRefusalCode.BEGINS_WITHOUT_ROWS,
        lambda asked, here: here.state in _WITHOUT_REPLICA and asked.pre_witness,
        lambda _asked, _here: "a PRE_WITNESS begins with the log alone, without a copy; the leader asks for that, too",
    ),
    Guard(
        CopyRefusalCode.BAD_TERM,
        lambda asked, here: asked.term < here.term,
        lambda asked, here: f"the leader is of term {asked.term}, and this replica knows term {here.term}; "
        "only the leader of the present term may ask",
    ),
    Guard(
        CopyRefusalCode.TERM_TOO_HIGH,
        lambda asked, here: is_too_far_ahead(asked.term, here.term),
        lambda asked, here: f"the leader would be of term {asked.term}, and this replica knows term {here.term}: "
        "between them are more recoveries than there can have been; restart the node of the leader",
    ),
    Guard(
        CopyRefusalCode.LEADS,
        lambda asked, here: here.leads and asked.term == here.term,
        lambda _asked, here: f"this replica is the only leader of term {here.term}, and a leader is never replaced "
        "by a copy; ask this replica for changes of the tablet",
    ),
    Guard(
        CopyRefusalCode.OLD_CONFIG,
        lambda asked, here: here.state in _HELD and asked.config < here.config,
        lambda asked, here: f"the leader has config {asked.config}, and this replica knows the committed config "
        f"{here.config}; the leader must catch up first",
    ),
    Guard(
        CopyRefusalCode.NOT_A_MEMBER,
        lambda asked, here: here.state in _HELD and asked.leader not in here.members and asked.config <= here.config,
        lambda asked, here: f"node {asked.leader} is not a member in config {here.config}, and has no newer one; "
        "only a leader may ask",
    ),
    Guard(
        CopyRefusalCode.OTHER_LAST_OP_ID,
        lambda asked, here: asked.last is not None and asked.last != here.last,
        lambda asked, here: f"the leader believes that the log ends at {asked.last}, and it ends at {here.last}; "
        "the leader must probe it again",
    ),
    Guard(
        CopyRefusalCode.NOT_NEEDED,
        lambda _asked, here: here.state is TargetState.READY and here.has_log_base,
        lambda asked, here: f"the log ends at {here.last} and has entry {asked.log_base}, so the leader can "
        "send the rest",
    ),
    Guard(
        CopyRefusalCode.CANCELLED,
        lambda _asked, here: here.cancelled,
        lambda _asked, _here: "an operator has cancelled the copy; it may begin again later, or at once after: "
        "stelae copy resume",
    ),
    Guard(
        CopyRefusalCode.PAUSED,
        lambda _asked, here: here.paused,
        lambda _asked, _here: "an operator has paused copies to this node; resume them with: stelae copy resume",
    ),
    Guard(
        CopyRefusalCode.THROTTLED,
        lambda _asked, here: here.slots_free < 1,
        lambda _asked, _here: "all copy slots of this node are in use; ask again",
    ),
)  # fmt: skip
"""The guards. The first one that applies refuses the request."""


AT_ONCE = frozenset(CopyRefusalCode) - {CopyRefusalCode.BEGINS_WITHOUT_ROWS}
"""The guards that may be applied before the files are looked at. A leader cannot tell a damaged replica that did not
start from a tombstone, and only the first one is copied for a witness."""

OVER_TOMBSTONE = frozenset(
    {
        CopyRefusalCode.LAST_OP_ID_UNKNOWN,
        CopyRefusalCode.OFFLINE,
        CopyRefusalCode.REMOVED,
        CopyRefusalCode.BAD_TERM,
        CopyRefusalCode.TERM_TOO_HIGH,
        CopyRefusalCode.OLD_CONFIG,
        CopyRefusalCode.NOT_A_MEMBER,
    }
)
"""The guards that hold for a witness, too, which begins over a tombstone without a copy."""


def refusal(
    asked: StartCopy, here: TargetFacts, of: Set[CopyRefusalCode] = frozenset(CopyRefusalCode)
) -> CopyRefusal | None:
    """Return why a request is refused, or ``None`` if the copy may begin. ``of``: the guards that are applied."""
    for guard in GUARDS:
        if guard.code in of and guard.applies(asked, here):
            return CopyRefusal(guard.code, guard.reason(asked, here))
    return None
