"""Planted bugs of rules 17 to 25: the tests of copies and of their crashes catch each one.

If a planted bug fails by itself, as by a wrong name, no test has caught it. ``CopyNode`` raises a ``Defect`` then,
which is no ``AssertionError``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.superblock import DataState
from stelae.lifecycle import copied_tablet, copy_stage, tablet_copy
from stelae.lifecycle.blocking_steps import OffLoop
from stelae.lifecycle.copied_replicas import CopiedReplicas
from stelae.lifecycle.copied_tablet import CopiedTablet
from stelae.lifecycle.copy_environment import CopyControlFlags
from stelae.lifecycle.copy_fences import CopyFences
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_stage import CopyStage
from stelae.lifecycle.copy_states import CopyStepOutcome
from stelae.lifecycle.tombstones import Tombstones
from stelae.spi.consensus import HardState
from tests.unit.lifecycle import test_copy_crashes as crashes
from tests.unit.lifecycle import test_copy_stage as stage
from tests.unit.lifecycle import test_interrupted_copy as interrupted
from tests.unit.lifecycle import test_kept_sessions as sessions
from tests.unit.lifecycle import test_refused_copies as refused
from tests.unit.lifecycle import test_tablet_copy as copies
from tests.unit.lifecycle.copy_node import Defect
from tests.unit.lifecycle.disk_node import LAYOUT, TABLET


def crash_at(point: str) -> None:
    crashes.test_a_process_that_is_killed_at_a_step_leaves_a_tombstone_or_a_replica("tombstone", point)


def test_a_replica_that_is_set_aside_before_the_guards_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 17: the pseudo-code of the source deletes the replica before its last checks."""
    check: Any = tablet_copy.TabletCopy._check

    def planted(copy: Any) -> Any:
        replica = copy._env.node.replicas.get(TABLET)
        if replica is not None and copy._here is None:
            yield from copy._env.manager.set_aside(replica, "")
        return (yield from check(copy))

    works = {**tablet_copy.TabletCopy._WORKS, tablet_copy.CopyState.CHECKING: planted}
    monkeypatch.setattr(tablet_copy.TabletCopy, "_WORKS", works)
    with pytest.raises(AssertionError):
        refused.test_a_request_that_a_guard_refuses_changes_no_byte(
            "lagging", CopyRefusalCode.BAD_TERM, {"hosted": True, "term": 3}, 1
        )


def test_guards_that_are_not_applied_again_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 17."""
    check: Any = tablet_copy.TabletCopy._check

    def planted(copy: Any) -> Any:
        return (yield from check(copy)) if copy._here is None else CopyStepOutcome.DONE

    monkeypatch.setattr(tablet_copy.TabletCopy, "_check", planted)
    with pytest.raises(AssertionError):
        copies.test_a_term_that_rises_while_the_source_answers_refuses_the_copy_before_the_first_effect()


def test_a_source_that_is_asked_on_though_a_newer_leader_asks_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour T9."""
    monkeypatch.setattr(CopyControlFlags, "asks_again", lambda _self: True)
    with pytest.raises(AssertionError):
        copies.test_a_source_that_does_not_answer_is_not_asked_on_once_a_leader_of_a_later_term_asks()


def test_a_source_that_is_behind_and_used_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 18."""
    monkeypatch.setattr(CopyFences, "refusal", lambda _self, _snapshot: None)
    with pytest.raises(AssertionError):
        copies.test_a_source_that_is_behind_or_wrong_is_not_used_and_another_one_is(copies.BEHIND["an older config"])


def test_a_snapshot_that_contradicts_itself_and_is_used_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet_copy, "inconsistent", lambda _snapshot, _tablet: None)
    with pytest.raises(AssertionError):
        copies.test_a_source_that_is_behind_or_wrong_is_not_used_and_another_one_is(copies.BEHIND["another tablet"])


def test_files_that_no_store_of_this_node_reads_and_that_are_used_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store opens them only when the superblock says READY."""
    monkeypatch.setattr(CopyFences, "_unusable", lambda _self, _facts, _snapshot: None)
    with pytest.raises(AssertionError):
        wrong = copies.BEHIND["files in another format"]
        copies.test_a_source_that_is_behind_or_wrong_is_not_used_and_another_one_is(wrong)


def test_fences_of_the_guards_instead_of_the_tombstone_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 18: the replica may have gone on before it was set aside."""
    fences: Any = tablet_copy.TabletCopy._fence_refusal
    monkeypatch.setattr(tablet_copy.TabletCopy, "_fence_refusal", lambda copy, _last: fences(copy, copy._here.last))
    monkeypatch.setattr(copied_tablet, "ready_block", _without_its_check)
    with pytest.raises(AssertionError):
        copies.test_a_replica_that_went_on_before_it_was_set_aside_is_not_replaced_by_less()


def _without_its_check(copying: Any, facts: Any, snapshot: Any, manifest: bytes) -> Any:
    changed = {name: getattr(facts, name) for name in ("schemas", "partition", "flushed", "timestamp", "results")}
    return msgspec.structs.replace(
        copying, data_state=DataState.READY, tombstone=None, quarantine=None, manifest=manifest, **changed
    )


def test_a_tombstone_that_is_forgotten_when_a_copy_begins_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 19."""
    block = copied_tablet.copying_block

    def planted(*args: Any, **kwargs: Any) -> Any:
        return msgspec.structs.replace(block(*args, **kwargs), tombstone=None)

    monkeypatch.setattr(copied_tablet, "copying_block", planted)
    with pytest.raises(AssertionError):
        crash_at("copy.after_item")


def test_metadata_that_is_written_beside_the_voter_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20."""

    def planted(tablet: Any, snapshot: Any) -> Any:
        file = ConsensusMetadata(tablet._node.files, LAYOUT, TABLET)

        def overwrite() -> None:
            old = file.load()
            term = max(snapshot.term, old.term)
            changed = {"term": term, "voted_for": None, "committed_config": snapshot.committed_config}
            file._replace(msgspec.structs.replace(old, **changed))

        yield OffLoop(overwrite)

    monkeypatch.setattr(CopiedTablet, "merge_metadata", planted)
    with pytest.raises(AssertionError):
        copies.test_the_tombstone_votes_during_the_copy_and_its_vote_survives_the_copy()


def test_a_voter_that_is_not_held_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20."""
    monkeypatch.setattr(Tombstones, "hold", lambda _self, _tablet: None)
    with pytest.raises(AssertionError):
        copies.test_a_vote_that_is_asked_for_while_the_replica_starts_is_not_given_by_the_voter()


def test_the_vote_of_the_source_that_is_adopted_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20: the source has voted for another node, and this one would claim to have done so, too."""
    from stelae_consensus_raft import voter_core

    monkeypatch.setattr(voter_core, "merged", lambda _local, term: HardState(term, copies.LEADER))
    with pytest.raises(AssertionError):
        copies.test_a_tombstone_becomes_a_replica_and_keeps_no_vote_of_an_older_term(copies.SERVED)


def test_a_term_that_goes_back_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20: the metadata of the source replaces that of the replica."""
    merge: Any = CopiedTablet.merge_metadata

    def planted(tablet: Any, snapshot: Any) -> Any:
        file = ConsensusMetadata(tablet._node.files, LAYOUT, TABLET)
        record = msgspec.structs.replace(file.load(), term=1, voted_for=None)
        yield OffLoop(lambda: file._replace(record))
        tablet._node.peers.voters.clear()
        yield from merge(tablet, snapshot)

    monkeypatch.setattr(CopiedTablet, "merge_metadata", planted)
    with pytest.raises(AssertionError):
        copies.test_the_tombstone_votes_during_the_copy_and_its_vote_survives_the_copy()


def test_items_that_are_not_verified_again_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 21: the transport reports as complete what is damaged on the disk."""
    monkeypatch.setattr(CopyStage, "verify", lambda _stage, _cancelled: [])
    with pytest.raises(AssertionError):
        interrupted.test_an_item_that_is_damaged_in_the_stage_is_fetched_again()


def test_an_item_that_gets_its_name_before_its_digest_is_checked_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 21."""
    monkeypatch.setattr(copy_stage._Digest, "is_that_of", lambda _digest, _unit: True)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        stage.test_an_item_without_its_digest_is_discarded_and_gets_no_name()


def test_a_superblock_that_is_ready_too_early_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules 22 and 24: the superblock that says READY is the commit point."""
    mark: Any = CopiedTablet.mark

    def planted(tablet: Any, old: Any, name: str) -> Any:
        yield from mark(tablet, old, name)
        tablet._file().save(msgspec.structs.replace(tablet.block, data_state=DataState.READY, tombstone=None))

    monkeypatch.setattr(CopiedTablet, "mark", planted)
    with pytest.raises(AssertionError):
        crash_at("copy.after_item")


def test_an_anchor_that_is_released_before_the_replica_follows_its_leader_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 25: the leader collects the entries in between, and the replica is copied again."""
    monkeypatch.setattr(CopiedReplicas, "_is_done", lambda _copied, _tablet, _one: True)
    with pytest.raises(AssertionError):
        sessions.test_a_session_is_kept_until_the_log_of_the_replica_has_what_its_source_had_committed()


def test_a_generation_that_does_not_rise_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 22: the log of the tombstone is taken for the copied one."""
    block = copied_tablet.copying_block

    def planted(old: Any, *args: Any, **kwargs: Any) -> Any:
        made = block(old, *args, **kwargs)
        return made if old is None else msgspec.structs.replace(made, generation=old.generation)

    monkeypatch.setattr(copied_tablet, "copying_block", planted)
    with pytest.raises(AssertionError):
        interrupted.test_a_copied_log_has_a_generation_of_its_own()


def test_a_planted_bug_that_fails_by_itself_catches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One used a name that had been changed. The copy failed because of that, and the test took it for caught."""

    def planted(copy: Any) -> Any:
        yield from ()
        return copy.renamed

    works = {**tablet_copy.TabletCopy._WORKS, tablet_copy.CopyState.FENCING: planted}
    monkeypatch.setattr(tablet_copy.TabletCopy, "_WORKS", works)
    with pytest.raises(Defect, match="renamed"):
        copies.test_a_term_that_rises_while_the_source_answers_refuses_the_copy_before_the_first_effect()
