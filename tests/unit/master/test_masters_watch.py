"""What a master knows of the masters: its own log, or what others say if it hears no leader."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.server.master.driver.masters_watch import LOOK_US, MastersWatch
from stelae.spi.errors import NotLeader, Unavailable
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.recovery_epoch import first_term
from tests.unit.master.driver_on_fakes import ManualTurns

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")
ONE, TWO = 1_700_000_000_000_000, 1_700_000_000_000_001  # When two clusters of one id were put on record.


def config(op_id: OpId, *nodes: NodeId) -> TabletConfig:
    return TabletConfig(op_id=op_id, members=tuple(Member(node_id=node, address=f"{node[0]}:1") for node in nodes))


class Watched:
    """Master A, whose file lists A, B and C. ``answers``: the views of the others."""

    def __init__(
        self, own: TabletConfig | None, leader: NodeId | None = None, *, cluster_created_us: int | None = ONE
    ) -> None:
        self.cluster_created_us = cluster_created_us  #: ``None``: the catalog is not loaded.
        self.turns = ManualTurns()
        self.answers: dict[NodeId, MastersView] = {}
        self.asked: list[NodeId] = []
        self.looks = 0
        self.replicas: dict[Any, Any] = {}
        if own is not None:
            status = SimpleNamespace(config=own, committed_config=own, leader=leader)
            self.replicas[SYSTEM_TABLET] = SimpleNamespace(status=status, failure="")
        messenger = SimpleNamespace(serve=self._serve, add_peer=lambda *_: None, call=self._call)
        node: Any = SimpleNamespace(
            node_id=A, address="a:1", turns=self.turns, replicas=self.replicas, messenger=messenger
        )
        self.watch = MastersWatch(node, config(ZERO, A, B, C).members, self._catalog, self._looked)
        self.watch.start()

    def _catalog(self) -> Any:
        return None if self.cluster_created_us is None else SimpleNamespace(cluster_created_us=self.cluster_created_us)

    def view(self) -> MastersView:
        """Ask this master."""
        replies: list[Any] = []
        self._handler(SimpleNamespace(body=[msgspec.msgpack.encode(MastersRequest())], reply=replies.append))
        return msgspec.msgpack.decode(replies[0][0], type=MastersView)

    def pass_a_look(self) -> None:
        self.turns.run(self.turns.time_us + LOOK_US)

    def _serve(self, kind: str, handler: Any) -> None:
        assert kind == MASTERS
        self._handler = handler

    def _looked(self) -> None:
        self.looks += 1

    def _call(self, to: NodeId, kind: str, frames: object, *, deadline_ms: int) -> Any:
        self.asked.append(to)
        found = self.answers.get(to)
        error = None if found is not None else Unavailable("down")
        body = [] if found is None else [msgspec.msgpack.encode(found)]
        call = SimpleNamespace(
            cancelled=lambda: False, exception=lambda: error, result=lambda: SimpleNamespace(body=body)
        )
        call.add_done_callback = lambda done: done(call)
        return call


def said(
    node: NodeId,
    known: TabletConfig | None,
    leader: NodeId | None = None,
    cluster_created_us: int = ONE,
    *,
    hearsay: bool = False,
) -> MastersView:
    return MastersView(
        node_id=node, config=known, leader=leader, cluster_created_us=cluster_created_us, hearsay=hearsay
    )


def test_a_master_that_hears_a_leader_asks_nobody_and_answers_from_its_log() -> None:
    own = config(OpId(2, 7), A, B, C)
    master = Watched(own, leader=B)
    master.pass_a_look()
    assert master.asked == [] and master.looks == 1
    assert master.view() == said(A, own, B)


def test_a_removed_master_learns_it_from_the_others_says_so_once_and_names_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = Watched(config(OpId(2, 7), A, B, C))
    now = config(OpId(3, 9), B, C, D)
    master.answers = {B: said(B, now, leader=D), C: said(C, config(OpId(2, 7), A, B, C))}
    assert not master.watch.removed
    with caplog.at_level(logging.WARNING):
        master.pass_a_look()
        master.pass_a_look()
        master.pass_a_look()
    assert master.watch.removed
    assert master.view() == MastersView(node_id=A, config=now, leader=D, removed=True, cluster_created_us=ONE)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "was removed: config 3.9 has the masters b:1, c:1, d:1" in told and "add it again with" in told
    assert D in master.asked, "it asks the masters that it has heard of, too"


def test_a_removed_master_refuses_with_the_addresses_of_the_present_masters_and_who_leads() -> None:
    master = Watched(config(OpId(2, 7), A, B, C))
    master.watch.check_present()
    master.answers = {B: said(B, config(OpId(3, 9), B, C, D), leader=D)}
    master.pass_a_look()
    with pytest.raises(NotLeader, match=r"config 3\.9 has the masters b:1, c:1, d:1") as refused:
        master.watch.check_present()
    assert refused.value.leader == D


def test_a_master_that_was_copied_to_before_it_is_added_is_not_called_removed(caplog: pytest.LogCaptureFixture) -> None:
    """Step 7 of the offline replacement: it said that it was removed, and is to be added again."""
    master = Watched(config(OpId(2, 7), B, C, D))
    with caplog.at_level(logging.WARNING):
        master.pass_a_look()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "this master was not added yet: config 2.7 has the masters b:1, c:1, d:1" in told
    assert "stelae master add a:1, or stelae master replace" in told
    with pytest.raises(NotLeader, match="this master was not added yet"):
        master.watch.check_present()


def test_a_former_voter_is_called_removed_also_if_its_own_config_does_not_list_it() -> None:
    own = replace(config(OpId(2, 7), B, C, D), former_voters=(A,))
    with pytest.raises(NotLeader, match="this master was removed"):
        Watched(own).watch.check_present()


def test_a_master_that_a_recovery_left_behind_is_not_to_be_added_with_its_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its log said to add it again. Its replica may have entries that the survivor never had, and failed for good."""
    master = Watched(config(OpId(2, 7), A, B, C))
    master.answers = {B: said(B, config(OpId(first_term(1, 5), 8), B), leader=B)}
    with caplog.at_level(logging.WARNING):
        master.pass_a_look()
        master.pass_a_look()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "was removed" in told and "format a new directory under a new uuid" in told and "add it again" not in told


def test_an_older_answer_changes_nothing() -> None:
    own = config(OpId(4, 1), A, B)
    master = Watched(own)
    master.answers = {B: said(B, config(OpId(2, 7), B, C), leader=C)}
    master.pass_a_look()
    assert master.watch.config == own and not master.watch.removed


def test_a_joining_master_knows_the_masters_and_is_not_removed() -> None:
    master = Watched(None, cluster_created_us=None)
    assert master.view() == said(A, None, cluster_created_us=0)
    master.answers = {B: said(B, config(OpId(2, 7), B, C), leader=C)}
    master.pass_a_look()
    assert master.view() == said(A, config(OpId(2, 7), B, C), leader=C, hearsay=True)
    master.replicas[SYSTEM_TABLET] = SimpleNamespace(
        status=SimpleNamespace(config=config(ZERO), committed_config=config(ZERO), leader=None), failure=""
    )
    assert not master.view().removed, "an empty replica gets its config with the log"


@pytest.mark.parametrize("body", [[], [b"\xc1"], [b"\x93"]])
def test_an_answer_that_is_none_is_ignored(body: list[bytes]) -> None:
    master = Watched(config(OpId(2, 7), A, B, C))
    call = SimpleNamespace(cancelled=lambda: False, exception=lambda: None, result=lambda: SimpleNamespace(body=body))
    master.watch._heard_from(call)
    assert master.watch.config == config(OpId(2, 7), A, B, C)


def test_a_master_whose_replica_has_failed_asks_the_others_who_leads() -> None:
    """One that led when it failed named itself as long as it ran."""
    watched = Watched(config(OpId(1, 1), A, B, C), leader=A)
    watched.pass_a_look()
    assert (watched.asked, watched.view().leader) == ([], A)
    watched.replicas[SYSTEM_TABLET].failure, watched.cluster_created_us = "the log cannot be trusted", None
    watched.answers[B] = said(B, config(OpId(1, 1), A, B, C), B)
    watched.pass_a_look()
    assert watched.view().leader == B


def test_masters_of_another_cluster_in_the_file_do_not_count_also_with_a_newer_config() -> None:
    """Both have one id. The master called itself removed, and refused requests with the names of the others."""
    own, theirs = config(OpId(2, 7), A, B, C), config(OpId(9, 9), D)
    for cluster_created_us in (ONE, None):
        master = Watched(own, cluster_created_us=cluster_created_us)
        master.answers = {C: said(C, theirs, D, TWO)}
        master.pass_a_look()
        assert master.view() == said(A, own, cluster_created_us=cluster_created_us or 0) and not master.watch.removed
    master.cluster_created_us = ONE
    master.answers[B] = said(B, config(OpId(2, 8), B, C), B)
    master.pass_a_look()
    assert master.watch.removed and master.view().leader == B


def test_what_a_joining_master_has_heard_of_another_cluster_does_not_count_once_it_has_joined() -> None:
    master = Watched(None, cluster_created_us=None)
    master.answers = {B: said(B, config(OpId(9, 9), D), D, TWO)}
    master.pass_a_look()
    assert master.view() == said(A, config(OpId(9, 9), D), D, TWO, hearsay=True)
    own = config(OpId(2, 7), A, C)
    status = SimpleNamespace(config=own, committed_config=own, leader=None)
    master.replicas[SYSTEM_TABLET] = SimpleNamespace(status=status, failure="")
    assert master.view() == said(A, own, cluster_created_us=0), "its catalog is being loaded"
    master.cluster_created_us = ONE
    assert master.view() == said(A, own)
    master.answers = {C: said(C, config(OpId(2, 8), A, C), C)}
    master.pass_a_look()
    assert master.view() == said(A, config(OpId(2, 8), A, C), C), "an older one of this cluster replaces it"
