"""Messages between the Raft cores of one tablet.

Entries travel beside an ``AppendEntries``, never inside it: the driver attaches them. Field bounds
are declared here, so the codec refuses what lies outside; the core checks the rest (``sound.py``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

from stelae.spi.ids import ZERO, OpId

NUMBER_MAX = (1 << 62) - 1
"""Largest term, index or round that a peer may name: beyond reach, and safe to add one to."""

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class VoteRefusal(StrEnum):
    """Why a vote or pre-vote was withheld."""

    STALE_TERM = "STALE_TERM"
    VOTED = "VOTED"
    """The vote of that term went to another candidate."""
    LOG_BEHIND = "LOG_BEHIND"
    """The candidate's log ends before the voter's."""
    LEADER_ALIVE = "LEADER_ALIVE"
    """The voter heard from a leader within one election timeout."""
    LOG_UNKNOWN = "LOG_UNKNOWN"
    """The voter does not know where its log ended, so it never votes."""


class AppendRefusal(StrEnum):
    """Why a replica did not take an ``AppendEntries``."""

    STALE_TERM = "STALE_TERM"
    MISMATCH = "MISMATCH"
    """The replica's log has no entry of ``prev``; ``hint`` says where agreement is possible."""
    NOT_HOSTED = "NOT_HOSTED"
    """The replica has no log of this tablet (a tombstone, or a copy under way): it only votes."""


class VoteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate asks for a vote, or whether it would get one (``pre``).

    ``term`` is the term that it campaigns in; a pre-vote names the one it would campaign in.
    ``attempt`` tells the candidate's campaigns apart: answers to an earlier one do not count.
    ``transfer`` tells that the leader itself asked for this campaign."""

    term: Number
    last: OpId
    attempt: Number = 0
    pre: bool = False
    transfer: bool = False


class VoteReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer to a ``VoteRequest``: ``term`` is the voter's; the request's own are repeated."""

    term: Number
    campaign_term: Number
    attempt: Number = 0
    pre: bool = False
    refusal: VoteRefusal | None = None


class AppendEntries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader's entries after ``prev``, possibly none, and its commit index.

    ``round`` numbers the leader's read confirmations in this term; every answer repeats it. A
    ``quiet`` message is only answered when it is refused: it carries news of the commit index.
    ``all_replicated``, at most ``commit``: every member holds the log durably up to this index, as far as
    the leader knows; 0: it knows nothing yet. Below it no member needs the log of another one.
    """

    term: Number
    prev: OpId
    commit: Number
    round: Number = 0
    quiet: bool = False
    all_replicated: Number = 0


class AppendReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer to an ``AppendEntries``.

    Attributes:
        term: the replica's.
        match: up to here the replica's log is durable and equals the leader's; 0 if refused.
        commit: the replica's commit index.
        round: that of the request.
        refusal: ``None`` when the entries were taken.
        rejected: index of the ``prev`` that was refused.
        hint: the last position at or below ``rejected`` whose term is at most that of ``prev``.
    """

    term: Number
    match: Number = 0
    commit: Number = 0
    round: Number = 0
    refusal: AppendRefusal | None = None
    rejected: Number = 0
    hint: OpId = ZERO


class TimeoutNow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The leader of ``term`` asks its successor, which has all of its log, to campaign at once."""

    term: Number


RaftMessage: TypeAlias = VoteRequest | VoteReply | AppendEntries | AppendReply | TimeoutNow

MESSAGE_TYPES: dict[str, type[msgspec.Struct]] = {
    "raft.vote": VoteRequest,
    "raft.vote_reply": VoteReply,
    "raft.append": AppendEntries,
    "raft.append_reply": AppendReply,
    "raft.timeout_now": TimeoutNow,
}
"""Kinds under which the kernel's codec knows the messages."""

VOTE_REQUEST_KINDS = frozenset({"raft.vote"})
