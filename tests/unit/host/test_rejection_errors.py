"""Every rejection of a core becomes an error that says what is, what was asked, and what to do next."""

from __future__ import annotations

import itertools

import pytest

from stelae.host.leadership_transfers import PendingTransfers
from stelae.host.member_changes import PendingMemberChanges
from stelae.host.rejection_errors import Asked, rejection_error
from stelae.spi.errors import (
    ChangeNotYet,
    MemberChangeRefused,
    NotLeader,
    NotTakenOver,
    RecoveryNotYet,
    RecoveryOutdated,
    RecoveryRefused,
    RetryableError,
    StelaeError,
    Unavailable,
)
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import AddServer, ChangeRole, MemberType, RemoveServer
from stelae.spi.rejections import Rejection, RejectReason

TABLET, NODE = TabletId("t1"), NodeId("a" * 32)
REMOVAL = Asked(f"remove node {NODE}", is_change=True)


@pytest.mark.parametrize("detail", ["", "what is; what to do"])
@pytest.mark.parametrize("reason", list(RejectReason))
def test_every_error_names_tablet_request_and_reason_and_says_what_to_do(reason: RejectReason, detail: str) -> None:
    """Those of a tablet that is CONFIGURING and of an aborted change said neither what was asked nor what next."""
    for asked in (REMOVAL, Asked("abort the change of its members"), None):
        said = str(rejection_error(Rejection(1, reason, NODE, detail), TABLET, asked))
        assert TABLET in said and reason in said and "; " in said
        assert asked is None or asked.text in said
        if detail and reason not in (RejectReason.NOT_LEADER, RejectReason.LEADERSHIP_LOST):
            assert detail in said


@pytest.mark.parametrize("reason", [RejectReason.CONFIGURING, RejectReason.TRANSFERRING, RejectReason.NO_SUCCESSOR])
def test_a_change_that_was_certainly_not_made_is_told_from_one_with_an_unknown_outcome(reason: RejectReason) -> None:
    """Clients took it for perhaps made. Then a change of somebody else made them give up with CHANGE_OVERTAKEN."""
    assert type(rejection_error(Rejection(1, reason), TABLET, REMOVAL)) is ChangeNotYet
    transfer = rejection_error(Rejection(1, reason), TABLET, Asked("hand over its leadership"))
    assert isinstance(transfer, Unavailable)
    for asked in (REMOVAL, Asked("hand over its leadership")):
        assert type(rejection_error(Rejection(1, RejectReason.NOT_TAKEN_OVER), TABLET, asked)) is NotTakenOver
    lost = rejection_error(Rejection(1, RejectReason.LEADERSHIP_LOST), TABLET, REMOVAL)
    assert isinstance(lost, NotLeader) and isinstance(lost, RetryableError)


@pytest.mark.parametrize(
    ("reason", "kind", "repeated"),
    [
        (RejectReason.LEADER_ALIVE, RecoveryNotYet, True),
        (RejectReason.CHANGED_SINCE, RecoveryOutdated, False),
        (RejectReason.STOOD_DOWN, RecoveryRefused, False),
        (RejectReason.ROWS_MISSING, RecoveryRefused, False),
        (RejectReason.NOT_A_MEMBER, MemberChangeRefused, False),
    ],
)
def test_a_recovery_is_repeated_only_if_its_refusal_may_pass(
    reason: RejectReason, kind: type[StelaeError], repeated: bool
) -> None:
    """The recovery of a witness, which has no rows, was asked for until the timeout."""
    error = rejection_error(Rejection(1, reason, None, "why; next"), TABLET, Asked("recover from this replica alone"))
    assert type(error) is kind and isinstance(error, RetryableError) is repeated
    assert type(rejection_error(Rejection(1, RejectReason.ROWS_MISSING), TABLET, REMOVAL)) is ChangeNotYet


def test_a_pending_request_knows_what_it_asks_until_it_is_answered() -> None:
    tokens = itertools.count(1)
    changes, transfers = PendingMemberChanges(tokens), PendingTransfers(tokens)
    ended: list[object] = []
    said = {
        changes.request(change, OpId(1, 1), ended.append).token: text
        for change, text in (
            (
                AddServer(node_id=NODE, address="a:1", member_type=MemberType.PRE_VOTER),
                f"add a:1 ({NODE}) as PRE_VOTER",
            ),
            (RemoveServer(node_id=NODE), f"remove node {NODE}"),
            (ChangeRole(node_id=NODE, member_type=MemberType.VOTER), f"make node {NODE} VOTER"),
        )
    }
    for token, text in said.items():
        assert changes.asked(token) == Asked(text, is_change=True)
    others = {
        changes.request_abort(ended.append).token: "abort",
        changes.request_recovery(9, OpId(1, 2), OpId(1, 1), ended.append).token: "recover",
        changes.request_stand_down(9, NODE, ended.append).token: NODE,
    }
    for token, text in others.items():
        asked = changes.asked(token)
        assert asked is not None and text in asked.text and not asked.is_change
    for to, text in ((NODE, f"hand over its leadership to node {NODE}"), (None, "hand over its leadership")):
        token = transfers.request(to, ended.append).token
        assert transfers.asked(token) == Asked(text) and changes.asked(token) is None
    transfers.fail_all(Unavailable("closed"))
    changes.fail_all(Unavailable("closed"))
    assert len(ended) == 8
    assert not changes._asked and not transfers._targets
