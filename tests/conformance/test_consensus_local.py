"""The local engine holds to the consensus contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.consensus import HardState, ReadReady, Role
from stelae.spi.consensus_events import Persisted, PersistFailed, ReadRequest
from stelae.spi.ids import NodeId
from stelae.spi.members import TabletConfig
from stelae.testing.conformance.consensus import ConsensusConformance, ConsensusHarness
from stelae_consensus_local import LocalEngine
from stelae_consensus_local.core import LocalCore
from stelae_consensus_local.local_log import LocalLog


class TestLocal(ConsensusConformance):
    @pytest.fixture
    def harness(self) -> ConsensusHarness:
        return _harness()


# -- the suite bites: each planted bug is caught by the check that is named beside it --------------


def _commits_at_append(self: LocalLog, ready_id: int, entries: Any) -> None:
    APPEND(self, ready_id, entries)
    self.persisted(ready_id)


def _commits_without_an_entry_of_its_term(self: LocalCore) -> None:
    if self._log.commit < self._log.durable:
        self._log.commit_durable()
        self._ready.commit = self._log.commit


def _leads_with_an_old_tail(self: LocalCore) -> None:
    LEAD(self)
    self._log.commit_durable()
    self._ready.commit = self._log.commit


def _keeps_its_term(self: LocalCore) -> None:
    BEGIN_TERM(self)
    if self._log.last.index:
        self._hard_state = self._ready.hard_state = HardState(self._log.last.term, self._node_id)


def _leads_before_its_term_is_durable(self: LocalCore) -> None:
    BEGIN_TERM(self)
    self._lead()


def _forgets_its_term(self: LocalCore) -> None:
    BEGIN_TERM(self)
    self._ready.hard_state = None
    self._lead()


def _reads_before_it_serves(self: LocalCore, event: ReadRequest) -> None:
    self._ready.reads_ready.append(ReadReady(event.token, self._log.commit))


def _reads_what_is_not_durable(self: LocalCore, event: ReadRequest) -> None:
    if self._not_serving() is None:
        self._ready.reads_ready.append(ReadReady(event.token, self._log.last.index))


def _serves_on(self: LocalCore, event: PersistFailed) -> None:
    self._log.failed(event.durable_index)


def _keeps_what_was_lost(self: LocalCore, event: PersistFailed) -> None:
    self._change_role(Role.FOLLOWER, "a write failed")


def _leads_again_at_once(self: LocalCore, event: PersistFailed) -> None:
    ON_PERSIST_FAILED(self, event)
    self._lead_at_us = self._now_us


def _never_leads_again(self: LocalCore, event: PersistFailed) -> None:
    ON_PERSIST_FAILED(self, event)
    self._change_role(Role.NON_PARTICIPANT, "a write failed")


def _saves_no_config(self: LocalLog) -> bool:
    return False


def _saves_the_config_at_append(self: LocalLog, ready_id: int, entries: Any) -> None:
    APPEND(self, ready_id, entries)
    self.committed_config = self.config


def _keeps_lost_configs(self: LocalLog, durable_index: int) -> None:
    above = list(self._above)
    FAILED(self, durable_index)
    self._above = above


def _ignores_a_removal(self: LocalCore, event: object) -> None:
    return None


def _accepts_all_members(node_id: NodeId, config: TabletConfig) -> None:
    return None


def _changes_nothing_and_says_nothing(self: LocalCore, event: object) -> None:
    return None


def _commits_late(self: LocalCore, event: Persisted) -> None:
    self._log.persisted(event.ready_id)
    if self._role is Role.CANDIDATE:
        self._lead()
    elif self._log.durable % 2:
        self._commit()


APPEND, FAILED = LocalLog.append, LocalLog.failed
LEAD, BEGIN_TERM, ON_PERSIST_FAILED = LocalCore._lead, LocalCore._begin_term, LocalCore._on_persist_failed

PLANTED = [
    (LocalLog, "append", _commits_at_append, "a_single_voter_commits_what_is_durable"),
    (LocalCore, "_lead", _leads_with_an_old_tail, "the_uncommitted_end_of_a_log_commits_with"),
    (LocalCore, "_commit", _commits_without_an_entry_of_its_term, "the_first_config_is_in_metadata_only_once"),
    (LocalCore, "_begin_term", _keeps_its_term, "every_start_of_a_single_voter_begins_a_later_term"),
    (LocalCore, "_begin_term", _forgets_its_term, "the_term_of_a_start_that_crashed_early"),
    (LocalCore, "_begin_term", _leads_before_its_term_is_durable, "a_single_voter_leads_only_once_its_vote"),
    (LocalCore, "_on_read", _reads_before_it_serves, "a_single_voter_serves_only_once_its_term"),
    (LocalCore, "_on_read", _reads_what_is_not_durable, "a_read_of_a_single_voter_is_ready_at_once"),
    (LocalCore, "_on_persist_failed", _serves_on, "a_single_voter_whose_log_fails_gives_up"),
    (LocalCore, "_on_persist_failed", _keeps_what_was_lost, "a_single_voter_whose_log_fails_gives_up"),
    (LocalCore, "_on_persist_failed", _leads_again_at_once, "a_single_voter_leads_again_in_a_later_term"),
    (LocalCore, "_on_persist_failed", _never_leads_again, "a_single_voter_leads_again_in_a_later_term"),
    (LocalLog, "commit_configs", _saves_no_config, "a_config_that_metadata_lacks_after_a_crash"),
    (LocalLog, "append", _saves_the_config_at_append, "the_first_config_is_in_metadata_only_once"),
    (LocalLog, "failed", _keeps_lost_configs, "a_start_whose_first_entry_fails"),
    (LocalCore, "_on_removed", _ignores_a_removal, "a_single_voter_stops_once_it_is_told"),
    (LocalCore, "_on_transfer", _changes_nothing_and_says_nothing, "a_single_voter_hands_over_to_itself_only"),
    (LocalCore, "_on_abort", _changes_nothing_and_says_nothing, "an_engine_that_does_not_change_members_has"),
    (LocalCore, "_on_persisted", _commits_late, "a_single_voter_commits_what_is_durable"),
]


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"), PLANTED, ids=[bug[2].__name__.strip("_") for bug in PLANTED]
)
def test_a_planted_bug_is_caught_by_its_check(
    owner: Any, name: str, bug: Callable[..., Any], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shortest name: the check that is named, and not one whose name begins with it.
    method = min((m for m in dir(TestLocal) if m.startswith(f"test_{check}")), key=len)
    getattr(TestLocal(), method)(_harness())
    assert callable(getattr(owner, name)), "the planted bug replaces nothing"
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        getattr(TestLocal(), method)(_harness())


def test_an_engine_that_accepts_all_members_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "check_members", staticmethod(_accepts_all_members))
    check = TestLocal().test_other_members_than_the_node_are_refused_by_an_engine_that_does_not_replicate
    with pytest.raises(pytest.fail.Exception):
        check(_harness(), ())


def test_checks_with_several_members_are_skipped_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="'local' does not declare 'replicates'"):
        _harness().cluster(3)


def _harness() -> ConsensusHarness:
    return ConsensusHarness(LocalEngine, LocalEngine.Config(), election_timeout_us=1_000_000)
