"""Messages between the Raft cores of one tablet.

Entries travel beside an ``AppendEntries``, never inside it: the driver attaches them. The bounds of fields are declared
here, so the codec refuses values outside of them. ``message_checks`` checks the rest."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

from stelae.spi.ids import ZERO, OpId

NUMBER_MAX = (1 << 62) - 1
"""Largest term, index or round in a message: never reached in practice, and 1 can be added to it safely."""

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class VoteRefusal(StrEnum):
    """Why a voter refused a vote or pre-vote."""

    STALE_TERM = "STALE_TERM"
    """The voter is in a later term."""
    VOTED = "VOTED"
    """The voter gave its vote of that term to another candidate."""
    LOG_BEHIND = "LOG_BEHIND"
    """The candidate's log ends before the voter's log."""
    LEADER_ALIVE = "LEADER_ALIVE"
    """The voter heard from a leader within one election timeout."""
    OLD_EPOCH = "OLD_EPOCH"
    """The candidate's log is of an earlier recovery epoch than its term: it was left behind by a recovery."""
    LOG_UNKNOWN = "LOG_UNKNOWN"
    """The voter does not know where its log ended. It never votes."""


class AppendRefusal(StrEnum):
    """Why a replica refused an ``AppendEntries``."""

    STALE_TERM = "STALE_TERM"
    """The replica is in a later term."""
    MISMATCH = "MISMATCH"
    """The replica's log does not hold ``prev``. ``hint`` is a position at which the logs can agree."""
    NOT_HOSTED = "NOT_HOSTED"
    """The replica has no log (a tombstone, or a copy that is under way). It only votes."""


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate's request for a vote, or for a pre-vote."""

    term: Number  #: The term of the campaign. In a pre-vote, the term that the campaign would have.
    last: OpId  #: The op id of the last entry of the candidate's log.
    attempt: Number = 0  #: Tells the candidate's campaigns apart. Answers to an earlier attempt do not count.
    pre: bool = False  #: True for a pre-vote.
    transfer: bool = False  #: True if the leader itself asked for this campaign.


class VoteReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a ``VoteRequest``."""

    term: Number  #: The voter's term.
    campaign_term: Number  #: ``term`` of the request.
    attempt: Number = 0  #: ``attempt`` of the request.
    pre: bool = False  #: ``pre`` of the request.
    refusal: VoteRefusal | None = None  #: ``None`` if the vote is granted.


class AppendEntries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An append: the leader's entries after ``prev``, possibly none, and its commit index."""

    term: Number  #: The leader's term.
    prev: OpId  #: The op id of the entry before the entries of this append.
    commit: Number  #: The leader's commit index.
    round: Number = 0  #: The leader's newest read round in this term (see ``read_index``). The answer repeats it.
    session: Number = (
        0  #: Tells the times apart at which the receiver was a member (see ``progress``). The answer repeats it.
    )
    quiet: bool = False  #: True if the follower answers only to refuse. Such an append carries only a commit index.
    all_replicated: Number = 0
    """Up to this index every member holds the log durably, as far as the leader knows; 0 if it knows nothing yet.

    It is at most ``commit``. No member needs the entries up to this index from another member."""


class AppendReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to an ``AppendEntries``."""

    term: Number  #: The replica's term.
    match: Number = 0  #: Up to this index the replica's log is durable and equal to the leader's; 0 if refused.
    commit: Number = 0  #: The replica's commit index.
    round: Number = 0  #: ``round`` of the append.
    session: Number = 0  #: ``session`` of the append.
    refusal: AppendRefusal | None = None  #: ``None`` if the append was accepted.
    rejected: Number = 0  #: If refused, the index of the append's ``prev``.
    hint: OpId = ZERO  #: If refused as MISMATCH, the last position of the log at which it can agree with the leader's.
    #: How long the replica grants no other candidate a vote, after it received the append; 0: it promises nothing.
    withholds_us: Number = 0
    log_only: bool = False  #: The replica has no rows (a witness).


class TimeoutNow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request of the leader of ``term`` to its successor, which has all of its log, to campaign at once."""

    term: Number


RaftMessage: TypeAlias = VoteRequest | VoteReply | AppendEntries | AppendReply | TimeoutNow

MESSAGE_TYPES: dict[str, type[msgspec.Struct]] = {
    "raft.vote": VoteRequest,
    "raft.vote_reply": VoteReply,
    "raft.append": AppendEntries,
    "raft.append_reply": AppendReply,
    "raft.timeout_now": TimeoutNow,
}
"""The name of each message in the kernel's codec."""

VOTE_REQUEST_KINDS = frozenset({"raft.vote"})
