"""Why a consensus core rejects a request."""

from enum import StrEnum

import msgspec

from stelae.spi.ids import NodeId


class RejectReason(StrEnum):
    """Why a proposal, a read, a transfer, a change of config or a recovery was rejected."""

    NOT_LEADER = "NOT_LEADER"
    CONFIGURING = "CONFIGURING"  #: The replica is leader, but no entry of its own term is committed yet.
    OVERLOADED = "OVERLOADED"
    TOO_LARGE = "TOO_LARGE"
    #: A proposal of a kind that only the core itself appends, or a change of config by an engine that changes none.
    UNSUPPORTED = "UNSUPPORTED"
    LEADERSHIP_LOST = "LEADERSHIP_LOST"  #: All but proposals: the leader stepped down before a majority confirmed.
    TRANSFERRING = "TRANSFERRING"  #: All but reads: leadership is being handed over.
    NOT_A_VOTER = "NOT_A_VOTER"  #: Transfers only: the target is not a member, or is a member that may not lead.
    NO_SUCCESSOR = "NO_SUCCESSOR"  #: Transfers, and changes that need one: no such voter was heard lately. None began.
    NOT_TAKEN_OVER = "NOT_TAKEN_OVER"  #: As before, but one began, and the successor has not won an election in time.
    # The others are of changes of config only.
    WRONG_CONFIG_ID = "WRONG_CONFIG_ID"  #: The committed config is not the one that the change is meant for.
    CHANGE_PENDING = "CHANGE_PENDING"  #: Another change is appended and not committed.
    NO_CHANGE = "NO_CHANGE"  #: The config already is as asked. ``AbortChange``: no change is in progress.
    NOT_A_MEMBER = "NOT_A_MEMBER"
    WRONG_MEMBER_TYPE = "WRONG_MEMBER_TYPE"  #: The member cannot get that type by this change.
    NOT_CAUGHT_UP = "NOT_CAUGHT_UP"  #: The member would get a vote, or others stay, but the log lags behind.
    ROWS_MISSING = "ROWS_MISSING"  #: The member would become a VOTER, but has the log only (a witness).
    LEADERLESS = "LEADERLESS"  #: No member of the new config could lead.
    NO_LIVE_MAJORITY = "NO_LIVE_MAJORITY"  #: The leader has not heard lately from a majority of the new config.
    STEPPING_DOWN = "STEPPING_DOWN"  #: The change concerns the leader. It has handed over to ``leader``: ask that one.
    ABORTED = "ABORTED"  #: ``AbortChange`` cancelled the change.
    CANNOT_ABORT = "CANNOT_ABORT"  #: ``AbortChange`` only: the change cannot be cancelled any more.

    # Of ``RecoverAlone`` and ``StandDown`` only. They are also rejected with NOT_A_MEMBER and ROWS_MISSING.
    LEADER_ALIVE = "LEADER_ALIVE"  #: The replica leads, or heard from a leader lately: the tablet has its majority.
    CHANGED_SINCE = "CHANGED_SINCE"  #: The replica's log or config is not the one that the recovery is meant for.
    STOOD_DOWN = "STOOD_DOWN"  #: The replica knows of another recovery, or has left the tablet to another survivor.
    RECOVERED = "RECOVERED"  #: The replica has the log of this recovery already: there is nothing to do.


class Rejection(msgspec.Struct, frozen=True):
    """A proposal, read, transfer, change of config or recovery was rejected. A rejected proposal is not in the log."""

    token: int
    reason: RejectReason
    leader: NodeId | None = None
    #: For changes of config and recoveries: what is, and after a semicolon what to do next. Who sends the request adds
    #: what was asked.
    detail: str = ""
