"""The guards of ``StartTabletCopy``: total, in the order of the source, each with its own code (T4, T5, rule 17)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest

from stelae.host.start_copy import StartCopy
from stelae.lifecycle.copy_guards import GUARDS, CopyRefusalCode, TargetFacts, TargetState, refusal
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term

LEADER, HERE, OTHER = (NodeId(letter * 32) for letter in "abc")
Code = CopyRefusalCode

ASKED = StartCopy(
    to=HERE,
    leader=LEADER,
    term=5,
    tablet_id=TabletId("t"),
    table_name="table",
    consensus="raft",
    config=OpId(4, 30),
    member_type=MemberType.VOTER,
    hosted=False,
    log_base=OpId(4, 50),
    sources=(Member(node_id=LEADER, address="a:1"),),
)
TOMBSTONE = TargetFacts(
    node_id=HERE,
    hosts_tables=True,
    consensus="raft",
    state=TargetState.DELETED,
    term=5,
    last=OpId(3, 20),
    config=OpId(2, 10),
    members=frozenset({LEADER, HERE}),
)
LAGGING = dataclasses.replace(TOMBSTONE, state=TargetState.READY)
DAMAGED = dataclasses.replace(TOMBSTONE, state=TargetState.DAMAGED)
NEVER = TargetFacts(node_id=HERE, hosts_tables=True, consensus="raft", state=TargetState.DOES_NOT_EXIST)


def asked(**changed: Any) -> StartCopy:
    return msgspec.structs.replace(ASKED, **changed)


def code(request: StartCopy, here: TargetFacts) -> CopyRefusalCode | None:
    found = refusal(request, here)
    return None if found is None else found.code


@pytest.mark.parametrize(
    ("request_", "here"),
    [
        (ASKED, TOMBSTONE),
        (asked(term=6), TOMBSTONE),
        (asked(last=OpId(3, 20)), TOMBSTONE),
        (asked(config=OpId(2, 10)), TOMBSTONE),
        (asked(leader=OTHER, config=OpId(2, 11)), TOMBSTONE),
        (asked(hosted=True), LAGGING),
        (asked(hosted=True, last=OpId(3, 20)), LAGGING),
        (asked(hosted=True), DAMAGED),
        (asked(hosted=False), DAMAGED),
        (asked(member_type=MemberType.PRE_VOTER), NEVER),
        (asked(member_type=MemberType.NON_VOTER, last=ZERO), NEVER),
        (asked(), dataclasses.replace(TOMBSTONE, last=ZERO, config=ZERO)),
    ],
)
def test_a_copy_over_a_tombstone_over_a_lagging_or_damaged_replica_and_for_a_new_member_begins(
    request_: StartCopy, here: TargetFacts
) -> None:
    assert refusal(request_, here) is None


ALONE: list[tuple[CopyRefusalCode, dict[str, Any], TargetFacts, dict[str, Any]]] = [
    (Code.INVALID_NAME, {"to": OTHER}, TOMBSTONE, {}),
    (Code.NOT_A_TABLET_SERVER, {}, TOMBSTONE, {"hosts_tables": False}),
    (Code.OTHER_CONSENSUS_ENGINE, {"consensus": "x" * 10_000}, TOMBSTONE, {}),
    (Code.ALREADY_IN_PROGRESS, {}, TOMBSTONE, {"state": TargetState.COPYING}),
    (Code.BUSY, {}, TOMBSTONE, {"operation": "deleted"}),
    (Code.LAST_OP_ID_UNKNOWN, {}, TOMBSTONE, {"last": "UNKNOWN"}),
    (Code.LAST_OP_ID_UNKNOWN, {}, TOMBSTONE, {"state": TargetState.OFFLINE, "last": "UNKNOWN"}),
    (Code.OFFLINE, {}, TOMBSTONE, {"state": TargetState.OFFLINE, "why_offline": "its store is damaged"}),
    (Code.OFFLINE, {"hosted": True}, LAGGING, {"state": TargetState.OFFLINE}),
    (Code.DAMAGED_AGAIN, {"hosted": True}, DAMAGED, {"replaced_lately": True}),
    (Code.REMOVED, {}, TOMBSTONE, {"removed": True}),
    (Code.ILLEGAL_STATE, {"hosted": True}, TOMBSTONE, {}),
    (Code.ILLEGAL_STATE, {"hosted": True, "member_type": MemberType.PRE_VOTER}, NEVER, {}),
    (Code.ILLEGAL_STATE, {}, LAGGING, {}),
    (Code.VOTER_WITHOUT_REPLICA, {}, NEVER, {}),
    (Code.VOTER_WITHOUT_REPLICA, {"member_type": MemberType.WITNESS}, NEVER, {}),
    (Code.BEGINS_WITHOUT_ROWS, {"member_type": MemberType.PRE_WITNESS, "pre_witness": True}, NEVER, {}),
    (Code.BEGINS_WITHOUT_ROWS, {"pre_witness": True}, TOMBSTONE, {}),
    (Code.BAD_TERM, {"term": 4}, TOMBSTONE, {}),
    (Code.BAD_TERM, {"term": 4, "hosted": True}, LAGGING, {}),
    (Code.TERM_TOO_HIGH, {"term": first_term(EPOCHS_AHEAD_MAX + 1, 0)}, TOMBSTONE, {}),
    (Code.LEADS, {"hosted": True}, LAGGING, {"leads": True}),
    (Code.OLD_CONFIG, {"config": OpId(2, 9)}, TOMBSTONE, {}),
    (Code.NOT_A_MEMBER, {"leader": OTHER, "config": OpId(2, 10)}, TOMBSTONE, {}),
    (Code.NOT_A_MEMBER, {"hosted": True, "config": OpId(2, 10)}, LAGGING, {"members": frozenset({HERE})}),
    (Code.OTHER_LAST_OP_ID, {"last": OpId(3, 21)}, TOMBSTONE, {}),
    (Code.OTHER_LAST_OP_ID, {"hosted": True, "last": OpId(3, 19)}, LAGGING, {}),
    (Code.NOT_NEEDED, {"hosted": True}, LAGGING, {"has_log_base": True}),
    (Code.CANCELLED, {}, TOMBSTONE, {"cancelled": True}),
    (Code.PAUSED, {}, TOMBSTONE, {"paused": True}),
    (Code.THROTTLED, {}, TOMBSTONE, {"slots_free": 0}),
]
"""One wrong thing at a time: what is asked, and of whom."""


@pytest.mark.parametrize(("expected", "request_", "here", "changed"), ALONE)
def test_each_guard_refuses_with_its_own_code_the_fact_and_the_next_step(
    expected: CopyRefusalCode, request_: dict[str, Any], here: TargetFacts, changed: dict[str, Any]
) -> None:
    found = refusal(asked(**request_), dataclasses.replace(here, **changed))
    assert found is not None and found.code is expected
    assert str(found).startswith(f"{expected}: ") and len(found.reason) < 400


def test_every_guard_has_a_code_of_its_own_and_a_test() -> None:
    codes = [guard.code for guard in GUARDS]
    assert len(set(codes)) == len(codes)
    assert set(codes) == {expected for expected, *_ in ALONE}
    of_sources = {Code.OTHER_STORE_ENGINE, Code.TOO_LARGE, *(code for code in Code if code.startswith("SOURCE_"))}
    assert set(Code) - of_sources == set(codes)


def test_every_combination_of_facts_has_one_answer_that_is_that_of_the_first_guard() -> None:
    """The function is total: no combination raises, and no copy begins that one of the facts forbids."""
    begun = 0
    requests = [
        asked(to=to, term=term, consensus=consensus, hosted=hosted, member_type=member, config=config, last=last)
        for to, term, consensus, hosted, member, config, last in itertools.product(
            (HERE, OTHER),
            (4, 5, 6),
            ("raft", "local"),
            (True, False),
            (MemberType.VOTER, MemberType.PRE_VOTER),
            (OpId(1, 1), OpId(4, 30)),
            (None, OpId(3, 20)),
        )
    ]
    places = [
        dataclasses.replace(TOMBSTONE, state=state, last=last, leads=leads, has_log_base=base, **busy)
        for state, last, leads, base, busy in itertools.product(
            TargetState,
            (OpId(3, 20), "UNKNOWN", OpId(3, 21)),
            (True, False),
            (True, False),
            ({}, {"operation": "created"}, {"slots_free": 0}, {"hosts_tables": False}),
        )
    ]
    for request_, here in itertools.product(requests, places):
        found = code(request_, here)
        applying = [guard.code for guard in GUARDS if guard.applies(request_, here)]
        assert found == (applying[0] if applying else None)
        if found is None:
            begun += 1
            assert request_.term >= here.term and here.last != "UNKNOWN" and here.slots_free
            assert here.state not in (TargetState.COPYING, TargetState.OFFLINE)
            assert here.state is TargetState.DAMAGED or request_.hosted == (here.state is TargetState.READY)
            assert request_.member_type is MemberType.PRE_VOTER or here.state is not TargetState.DOES_NOT_EXIST
    assert begun > 50, "some copies begin"


def test_the_wrong_name_is_refused_before_anything_else_is_looked_at() -> None:
    worst = TargetFacts(
        node_id=HERE, hosts_tables=False, consensus="local", state=TargetState.COPYING, term=9, slots_free=0
    )
    assert code(asked(to=OTHER), worst) is Code.INVALID_NAME
    assert code(ASKED, dataclasses.replace(worst, hosts_tables=True, consensus="raft")) is Code.ALREADY_IN_PROGRESS
