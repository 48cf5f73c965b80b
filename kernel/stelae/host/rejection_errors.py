"""The errors that callers get for a proposal, a read, a transfer or a change of config that the core rejected."""

from typing import assert_never

from stelae.spi.errors import (
    AlreadyRecovered,
    CallerError,
    CannotAbort,
    ChangeNotYet,
    MemberChangeRefused,
    NoChange,
    NotLeader,
    Overloaded,
    RecoveryNotYet,
    RecoveryRefused,
    StelaeError,
    Unavailable,
    WrongConfigId,
)
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


_BY_DETAIL: dict[Why, type[CallerError]] = {
    Why.NO_CHANGE: NoChange,
    Why.WRONG_CONFIG_ID: WrongConfigId,
    Why.CANNOT_ABORT: CannotAbort,
    Why.RECOVERED: AlreadyRecovered,
}


def rejection_error(rejection: Rejection) -> StelaeError:
    """Return the error for a rejection."""
    match rejection.reason:
        case Why.NOT_LEADER:
            return ProposalNotLeader(rejection.leader, rejection.reason.value)
        case Why.LEADERSHIP_LOST:
            return NotLeader(rejection.leader, rejection.reason.value)
        case Why.CONFIGURING:
            return ProposalUnavailable("the tablet is CONFIGURING")
        case Why.OVERLOADED:
            return ProposalOverload("too many proposals are not committed yet")
        case Why.TRANSFERRING:
            return ProposalUnavailable("leadership is being handed over")
        case Why.NO_SUCCESSOR:
            return Unavailable("no other voter could take over in time; this replica is still the leader")
        case Why.NOT_A_VOTER:
            return CallerError("leadership can be handed over only to a voter of the tablet")
        case Why.STEPPING_DOWN:
            return NotLeader(rejection.leader, f"{rejection.reason}: {rejection.detail}")
        case Why.NO_CHANGE | Why.WRONG_CONFIG_ID | Why.CANNOT_ABORT | Why.RECOVERED:
            return _BY_DETAIL[rejection.reason](rejection.detail)
        case Why.CHANGE_PENDING | Why.NOT_CAUGHT_UP | Why.NO_LIVE_MAJORITY | Why.ROWS_MISSING:
            return ChangeNotYet(f"{rejection.reason}: {rejection.detail}")
        case Why.NOT_A_MEMBER | Why.WRONG_MEMBER_TYPE | Why.LEADERLESS:
            return MemberChangeRefused(f"{rejection.reason}: {rejection.detail}")
        case Why.LEADER_ALIVE:
            return RecoveryNotYet(f"{rejection.reason}: {rejection.detail}")
        case Why.CHANGED_SINCE | Why.STOOD_DOWN:
            return RecoveryRefused(f"{rejection.reason}: {rejection.detail}")
        case Why.ABORTED:
            return MemberChangeRefused("the change was aborted on request")
        case Why.UNSUPPORTED if rejection.detail:
            return MemberChangeRefused(f"{rejection.reason}: {rejection.detail}")
        case Why.TOO_LARGE | Why.UNSUPPORTED:
            return CallerError(f"the proposal can never be accepted: {rejection.reason}")
        case _:
            assert_never(rejection.reason)
