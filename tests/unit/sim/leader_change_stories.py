"""Stories of changes that a leader appends, on request and by itself, and what is legal."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stelae.sim.invariants.leader_changes import CATCH_UP_TIMEOUTS
from stelae.spi.consensus import LogAppend, PeerProgress
from stelae.spi.consensus_events import UNKNOWN, BeatException, ChangeMembers, Event, PeerAlive
from stelae.spi.ids import ZERO, OpId
from stelae.spi.members import MemberType, RemoveServer
from stelae.spi.rejections import Rejection, RejectReason
from tests.unit.sim.member_stories import changes, config_entry, leads_with_commits
from tests.unit.sim.rig import NAMES, Rig, entry

V, N = MemberType.VOTER, MemberType.NON_VOTER

WITHOUT_LAST = config_entry(1, 2, V, V)
LONG_US = CATCH_UP_TIMEOUTS * 1_000_000


def asked_to_remove_last(rig: Rig, seen: OpId | None) -> None:
    """Node 0, which leads, is asked to remove node 2."""
    leads_with_commits(rig)
    rig.facts.stepped(rig.world.nodes[0], [ChangeMembers(1, RemoveServer(node_id=NAMES[2]), seen)])


def knows(rig: Rig, match_index: int) -> None:
    """Node 0, which leads, knows that node 2 has acknowledged its log up to an index."""
    node = rig.world.nodes[0]
    assert node.status is not None
    peer = PeerProgress(
        node_id=NAMES[2], match_index=match_index, next_index=match_index + 1, state="REPLICATE", in_flight=0
    )
    rig.facts.status(node, msgspec.structs.replace(node.status, peers=(peer,)))


def changes_for_another_config(rig: Rig) -> None:
    asked_to_remove_last(rig, OpId(1, 1))
    changes(rig, WITHOUT_LAST)


def removes_one_that_has_answered(rig: Rig) -> None:
    leads_with_commits(rig)
    knows(rig, 1)
    changes(rig, WITHOUT_LAST)


def removes_one_although_the_request_was_refused(rig: Rig) -> None:
    asked_to_remove_last(rig, OpId(1, 1))
    knows(rig, 1)
    rejected = Rejection(1, RejectReason.WRONG_CONFIG_ID)
    rig.ready(0, append=LogAppend(entries=(WITHOUT_LAST,)), rejections=(rejected,))


def removes_one_that_joins(rig: Rig, member_type: MemberType, answer: Event, silent_us: int) -> None:
    """Node 0 removes node 2, which has acknowledged an entry, a time after its last answer."""
    is_at_first(rig, member_type)
    leads_with_commits(rig)
    knows(rig, 1)
    rig.now_us += 7
    rig.facts.stepped(rig.world.nodes[0], [answer])
    rig.now_us += silent_us
    if isinstance(answer, PeerAlive):  # It is given to the core again and again.
        rig.facts.stepped(rig.world.nodes[0], [answer])
    changes(rig, WITHOUT_LAST)


def removes_one_that_joins_and_answers(rig: Rig) -> None:
    removes_one_that_joins(rig, MemberType.PRE_VOTER, PeerAlive(NAMES[2], 1, 5), 1_000_000)


def removes_one_that_is_being_copied(rig: Rig) -> None:
    removes_one_that_joins(rig, MemberType.PRE_WITNESS, BeatException(NAMES[2], 0, UNKNOWN), 1_000_000)


def removes_a_learner_that_is_down(rig: Rig) -> None:
    removes_one_that_joins(rig, N, PeerAlive(NAMES[2], 1, 5), rig.world.member_join_timeout_us)


def is_at_first(rig: Rig, member_type: MemberType) -> None:
    """Give node 2 this type in the first config."""
    rig.world.initial_config = msgspec.structs.replace(
        rig.world.initial_config,
        members=tuple(
            msgspec.structs.replace(member, member_type=member_type) if member.node_id == NAMES[2] else member
            for member in rig.world.initial_config.members
        ),
    )
    for node in rig.world.nodes:
        node.committed_config = rig.world.initial_config


def gives_a_vote(rig: Rig, match_index: int, after_us: int) -> None:
    """Node 0 gives node 2 a vote a time after its log got its third entry."""
    is_at_first(rig, N)
    leads_with_commits(rig)
    rig.append(0, entry(1, 2), entry(1, 3))
    rig.now_us += after_us
    changes(rig, config_entry(1, 4, V, V, V))
    node = rig.world.nodes[0]
    assert node.status is not None
    node.status = msgspec.structs.replace(node.status, config=rig.world.newest_config(node))
    knows(rig, match_index)


def gives_a_vote_to_one_that_lags(rig: Rig) -> None:
    gives_a_vote(rig, 2, LONG_US)


FAULTY_LEADER_CHANGES: dict[str, list[Callable[[Rig], None]]] = {
    "changes_are_fenced": [changes_for_another_config],
    "no_needless_removal": [
        removes_one_that_has_answered,
        removes_one_although_the_request_was_refused,
        removes_one_that_joins_and_answers,
        removes_one_that_is_being_copied,
        removes_a_learner_that_is_down,
    ],
    "voters_have_caught_up": [gives_a_vote_to_one_that_lags],
}


def changes_for_the_config_that_it_has(rig: Rig) -> None:
    asked_to_remove_last(rig, ZERO)
    knows(rig, 1)
    changes(rig, WITHOUT_LAST)


def changes_for_any_config(rig: Rig) -> None:
    asked_to_remove_last(rig, None)
    knows(rig, 1)
    changes(rig, WITHOUT_LAST)


def removes_one_that_never_answered(rig: Rig) -> None:
    leads_with_commits(rig)
    knows(rig, 0)
    changes(rig, WITHOUT_LAST)


def removes_one_that_died_while_it_joined(rig: Rig) -> None:
    removes_one_that_joins(rig, MemberType.PRE_VOTER, PeerAlive(NAMES[2], 1, 5), rig.world.member_join_timeout_us)


def gives_a_vote_to_one_that_has_all(rig: Rig) -> None:
    gives_a_vote(rig, 3, LONG_US)


def gives_a_vote_while_new_entries_are_sent(rig: Rig) -> None:
    gives_a_vote(rig, 0, LONG_US - 1)


FAULTLESS_LEADER_CHANGES = [
    changes_for_the_config_that_it_has,
    changes_for_any_config,
    removes_one_that_never_answered,
    removes_one_that_died_while_it_joined,
    gives_a_vote_to_one_that_has_all,
    gives_a_vote_while_new_entries_are_sent,
]
