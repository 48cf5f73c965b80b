"""The errors that callers get for a proposal, a read, a transfer or a change of config that the core rejected."""

from dataclasses import dataclass
from typing import assert_never

from stelae.spi.errors import (
    AlreadyRecovered,
    CallerError,
    CannotAbort,
    ChangeNotYet,
    MemberChangeRefused,
    NoChange,
    NotLeader,
    NotTakenOver,
    Overloaded,
    RecoveryNotYet,
    RecoveryOutdated,
    RecoveryRefused,
    StelaeError,
    Unavailable,
    WrongConfigId,
)
from stelae.spi.ids import TabletId
from stelae.spi.rejections import Rejection
from stelae.spi.rejections import RejectReason as Why


class NotProposed:
    """Of an error of a proposal that the core did not take: it is in no log, and never will be."""


class ProposalUnavailable(NotProposed, Unavailable):
    """The leader takes no proposals now."""


class ProposalOverload(NotProposed, Overloaded):
    """The leader takes no more proposals until some are committed."""


class ProposalNotLeader(NotProposed, NotLeader):
    """This replica does not lead."""


_BY_REASON: dict[Why, type[StelaeError]] = {
    Why.NO_SUCCESSOR: Unavailable,
    Why.NOT_TAKEN_OVER: NotTakenOver,
    Why.OVERLOADED: ProposalOverload,
    Why.NO_CHANGE: NoChange,
    Why.WRONG_CONFIG_ID: WrongConfigId,
    Why.CANNOT_ABORT: CannotAbort,
    Why.RECOVERED: AlreadyRecovered,
    Why.CHANGED_SINCE: RecoveryOutdated,
    Why.STOOD_DOWN: RecoveryRefused,
}

_DETAILS: dict[Why, str] = {
    Why.CONFIGURING: "no entry of the term of this leader is committed yet; try again soon",
    Why.OVERLOADED: "too many proposals are not committed yet; try again when some are",
    Why.TRANSFERRING: "leadership is being handed over, which ends within an election timeout; try again then",
    Why.NO_SUCCESSOR: "this leader has heard no voter lately that could take over; start another voter, or add one",
    Why.NOT_TAKEN_OVER: "no other voter took over in time, and this replica still leads; look at the others first",
    Why.NOT_A_VOTER: "leadership can be handed over only to a voter of the tablet; choose one of its config",
    Why.ABORTED: "an operator has cancelled the change before it was appended; ask again if it is still wanted",
    Why.TOO_LARGE: "the proposal can never be accepted; make it smaller",
    Why.UNSUPPORTED: "the proposal can never be accepted; only the core itself appends such entries",
}
"""What is, and what to do next, where a core gives no detail."""

_NO_DETAIL = "the consensus engine says no more; look at the config of the tablet, then decide"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of the tablet. ``text`` says it in words: ``"remove node ..."``."""

    text: str
    is_change: bool = False  #: A change of the members.


def rejection_error(rejection: Rejection, tablet_id: TabletId, asked: Asked | None = None) -> StelaeError:
    """Return the error for a rejection. Its text says what is, what was asked, and after a semicolon what to do next.

    Args:
        rejection: of the core.
        tablet_id: the tablet of the core.
        asked: the request; ``None`` for a proposal or a read. A change that was certainly not made, and may succeed
            later, is rejected with ``ChangeNotYet``.
    """
    request = f"tablet {tablet_id} was asked to {asked.text}" if asked is not None else f"tablet {tablet_id}"
    fact = f"{request}: {rejection.reason}: {rejection.detail or _DETAILS.get(rejection.reason, _NO_DETAIL)}"
    match rejection.reason:
        case Why.NOT_LEADER:
            return ProposalNotLeader(rejection.leader, f"{request}: {rejection.reason}")
        case Why.LEADERSHIP_LOST:
            return NotLeader(rejection.leader, f"{request}: {rejection.reason}")
        case Why.STEPPING_DOWN:
            return NotLeader(rejection.leader, fact)
        case Why.CONFIGURING | Why.TRANSFERRING | Why.NO_SUCCESSOR if asked is not None and asked.is_change:
            return ChangeNotYet(fact)
        case Why.CONFIGURING | Why.TRANSFERRING:
            return ProposalUnavailable(fact)
        case Why.NO_SUCCESSOR | Why.NOT_TAKEN_OVER | Why.OVERLOADED:
            return _BY_REASON[rejection.reason](fact)
        case (
            Why.NO_CHANGE | Why.WRONG_CONFIG_ID | Why.CANNOT_ABORT | Why.RECOVERED | Why.CHANGED_SINCE | Why.STOOD_DOWN
        ):
            return _BY_REASON[rejection.reason](fact)
        case Why.ROWS_MISSING if asked is not None and not asked.is_change:
            return RecoveryRefused(fact)
        case Why.CHANGE_PENDING | Why.NOT_CAUGHT_UP | Why.NO_LIVE_MAJORITY | Why.ROWS_MISSING:
            return ChangeNotYet(fact)
        case Why.NOT_A_MEMBER | Why.WRONG_MEMBER_TYPE | Why.LEADERLESS | Why.ABORTED:
            return MemberChangeRefused(fact)
        case Why.LEADER_ALIVE:
            return RecoveryNotYet(fact)
        case Why.UNSUPPORTED if rejection.detail:
            return MemberChangeRefused(fact)
        case Why.NOT_A_VOTER | Why.TOO_LARGE | Why.UNSUPPORTED:
            return CallerError(fact)
        case _:
            assert_never(rejection.reason)
