"""Whom a tablet server takes for the masters: the newest config, and its file as long as it is lost."""

from __future__ import annotations

from stelae.lifecycle.masters_file import StoredMasters
from stelae.server.tserver.known_masters import LOST_US, KnownMasters
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")


def member(node: NodeId, address: str = "") -> Member:
    return Member(node_id=node, address=address or f"{node[0]}:1")


def config(index: int, *nodes: NodeId) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, index), members=tuple(map(member, nodes)))


ONE, TWO = 1_700_000_000_000_000, 1_700_000_000_000_001  # When two clusters of one id were put on record.
LISTED = (member(A), member(B), member(C))


def test_the_file_counts_until_a_config_is_learned() -> None:
    known = KnownMasters(LISTED, None)
    assert set(known.addresses) == {A, B, C} and known.config_id is None
    assert not known.asks, "the masters name the config of a cluster that is not on record, too"
    assert known.learn(config(5, B, C, D), ONE) and known.asks and known.config_id == OpId(1, 5)
    assert known.answered(B, C, 1) and set(known.addresses) == {B, C, D}


def test_an_older_config_never_replaces_a_newer_one() -> None:
    """Mutant: the old list wins."""
    known = KnownMasters(LISTED, None)
    known.learn(config(9, B, C, D), ONE)
    assert (
        not known.learn(config(5, A, B, C), ONE)
        and not known.learn(config(9, A), ONE)
        and known.config == config(9, B, C, D)
    )
    assert not known.learn(TabletConfig(op_id=OpId(9, 9), members=()), ONE)


def test_a_stored_config_and_the_file_are_both_tried_until_a_master_of_the_config_names_one_that_leads() -> None:
    """All masters of the stored config may have been replaced while the server was down, and the file corrected."""
    known = KnownMasters((member(D),), StoredMasters(ONE, config(5, A, B, C)))
    assert set(known.addresses) == {A, B, C, D}
    assert not known.answered(D, D, 1), "D is no master of the config: its own may be of an earlier time"
    assert not known.answered(A, None, 1) and not known.answered(A, D, 1)
    assert known.answered(A, B, 1) and set(known.addresses) == {A, B, C}
    assert not known.answered(A, B, 1)


def test_a_config_that_a_removed_master_names_may_be_old_so_the_file_is_tried_on() -> None:
    """The file lists A, which was removed and runs on, and C, a present master. All that A knows is gone by now."""
    known = KnownMasters((member(A), member(C)), None)
    assert known.learn(config(5, B), ONE) and not known.answered(A, B, 1)
    assert known.lost and set(known.addresses) == {A, B, C}
    assert known.learn(config(9, C), ONE) and known.answered(C, C, 2)
    assert not known.lost and set(known.addresses) == {C}


def test_the_file_is_tried_again_once_no_master_of_the_config_names_a_leader() -> None:
    """All masters of the config were replaced while the network kept the server, which ran on, from them."""
    known = KnownMasters(LISTED, None)
    known.learn(config(5, D), ONE)
    known.answered(D, D, 7)
    assert not known.waited(7 + LOST_US) and set(known.addresses) == {D}
    assert known.waited(8 + LOST_US) and set(known.addresses) == {A, B, C, D} and not known.waited(9 + LOST_US)
    assert known.answered(D, D, 10 + LOST_US) and not known.waited(11 + LOST_US) and set(known.addresses) == {D}


def test_an_address_in_a_config_overrides_that_in_the_file() -> None:
    known = KnownMasters(LISTED, None)
    known.learn(TabletConfig(op_id=OpId(2, 1), members=(member(A, "moved:1"),)), ONE)
    assert known.addresses == {A: "moved:1", B: "b:1", C: "c:1"}
    known.answered(A, A, 1)
    assert known.addresses == {A: "moved:1"}


def test_a_difference_to_the_file_is_told_with_both_sides_and_the_next_step() -> None:
    known = KnownMasters(LISTED, None)
    assert known.difference_to_file() == ""
    known.learn(config(5, A, B, C), ONE)
    assert known.difference_to_file() == ""
    known.learn(config(7, A, D), ONE)
    told = known.difference_to_file()
    assert told.startswith("[masters] lists a:1 (aaaaaaaa), b:1 (bbbbbbbb), c:1 (cccccccc); by config 1.7 the masters")
    assert "a:1 (aaaaaaaa), d:1 (dddddddd)" in told and "list them in [masters]" in told


def test_masters_of_another_cluster_with_the_same_id_are_ignored_however_new_their_config_is() -> None:
    """Mutant: creations are not compared."""
    known = KnownMasters(LISTED, None)
    assert not known.learn(config(1, D), 0), "it is not on record, and may become another cluster"
    assert known.learn(config(5, A, B, C), ONE) and not known.are_others(ONE) and not known.are_others(0)
    assert known.are_others(TWO) and not known.learn(config(9, D), TWO) and not known.learn(config(9, D), 0)
    assert known.followed == StoredMasters(ONE, config(5, A, B, C))


def test_a_server_that_is_handed_over_follows_masters_whose_config_has_a_lower_op_id() -> None:
    known = KnownMasters(LISTED, StoredMasters(ONE, config(5, A, B, C)))
    known.answered(A, A, 1)
    known.follow(StoredMasters(TWO, config(1, D)))
    assert known.lost and known.config_id == OpId(1, 1)
    assert known.learn(config(2, D, B), TWO) and not known.learn(config(9, A), ONE)


def test_masters_whose_uuids_begin_alike_are_told_by_their_whole_uuids() -> None:
    """A list with a wrong last digit looked like the config beside it."""
    wrong = NodeId(D[:-1] + "e")
    known = KnownMasters([member(A), member(wrong)], None)
    known.learn(config(7, A, D), ONE)
    told = known.difference_to_file()
    assert f"({wrong})" in told and f"({D})" in told
    assert told.count("(aaaaaaaa)") == 2, "the others stay short"
