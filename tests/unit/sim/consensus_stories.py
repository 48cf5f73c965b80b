"""Stories that violate an invariant of consensus, log or clients. ``FAULTY`` maps each invariant to its stories."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stelae.host.hybrid_clock import timestamp
from stelae.sim.clock import EPOCH_US
from stelae.sim.history import SCHEMA, AnswerKind, ClientAction, ClientAnswer, HistoryRow
from stelae.sim.log_model import LogModel
from stelae.sim.stale_probe import StaleDelivery
from stelae.sim.world import Needs
from stelae.spi.consensus import CopyRequest, HardState, LogAppend, LogView, Outbound, ReadReady, Role
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig, encode_config
from stelae.spi.schema import Column, Schema
from stelae.spi.wal import LogState
from tests.unit.sim.copy_stories import FAULTY_COPIES
from tests.unit.sim.epoch_stories import FAULTY_EPOCHS
from tests.unit.sim.leader_change_stories import FAULTY_LEADER_CHANGES
from tests.unit.sim.member_stories import FAULTY_MEMBERS
from tests.unit.sim.rig import CONFIG, LOG, NAMES, Rig, applied, begin, committed, done, entry, history, write
from tests.unit.sim.store_stories import FAULTY_STORES


def two_leaders(rig: Rig) -> None:
    rig.lead(0, 3)
    rig.lead(1, 3)


def leader_replaces(rig: Rig) -> None:
    rig.append(0, entry(1, 1))
    rig.lead(0, 1)
    rig.append(0, entry(1, 1), replace_from=1)


def same_op_id_other_body(rig: Rig) -> None:
    rig.append(0, entry(1, 1, b"a"))
    rig.append(1, entry(1, 1, b"b"))


def same_op_id_other_predecessor(rig: Rig) -> None:
    rig.append(0, entry(1, 1), entry(3, 2))
    rig.append(1, entry(2, 1), entry(3, 2))


def elected_without_committed(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.world.nodes[2].log.clear()
    rig.lead(2, 2)


def commits_an_older_term(rig: Rig) -> None:
    rig.ready(0, hard_state=HardState(2, NAMES[0]))
    for position in range(3):
        rig.append(position, entry(1, 1))
    rig.ready(0, commit=1)


def commits_without_majority(rig: Rig) -> None:
    rig.ready(0, hard_state=HardState(1, NAMES[0]))
    rig.append(0, entry(1, 1))
    rig.ready(0, commit=1)


def commit_goes_back(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2))
    rig.ready(0, commit=1)


def starts_with_more_than_committed(rig: Rig) -> None:
    rig.append(0, entry(1, 1))
    rig.restart(0, commit=1)


def changes_its_vote(rig: Rig) -> None:
    rig.ready(0, hard_state=HardState(1, NAMES[0]))
    rig.ready(0, hard_state=HardState(1, NAMES[1]))


def forgets_an_exposed_vote(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.ready(1, hard_state=HardState(4, NAMES[1]))
    node.saved = HardState(4, NAMES[1])
    rig.facts.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, NAMES[1])))
    rig.restart(0, term=4)


def starts_in_an_older_term(rig: Rig) -> None:
    node = rig.world.nodes[0]
    node.saved = HardState(4, None)
    rig.facts.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, None)))
    rig.restart(0, term=3)


def acts_on_a_term_that_was_not_handed_out(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.status(0, Role.FOLLOWER, 2)
    assert node.status is not None
    node.hard_state = HardState(1, None)
    rig.facts.status(node, node.status)


def believes_an_entry_durable_that_is_not(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.ready(0, append=LogAppend(entries=(entry(1, 1),)))
    rig.status(0, Role.FOLLOWER, 1)
    assert node.status is not None
    rig.facts.status(node, msgspec.structs.replace(node.status, durable_index=1))


def sends_before_the_vote_is_saved(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.facts.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, NAMES[1])))


def sends_before_the_log_is_durable(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.ready(0, append=LogAppend(entries=(entry(1, 1),)))
    rig.facts.sent(node, Outbound(NAMES[1], CONFIG, 0), Needs(HardState(), OpId(1, 1)))


def requests_read_index(rig: Rig, position: int = 0, token: int = 1) -> None:
    rig.facts.read(rig.world.nodes[position], token)


def reads_before_its_first_entry(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.ready(1, hard_state=HardState(2, NAMES[1]), append=LogAppend(entries=(entry(2, 2),)))
    requests_read_index(rig, 1)
    rig.ready(1, reads_ready=(ReadReady(1, 1),))


def reads_below_what_is_committed(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2))
    requests_read_index(rig)
    rig.ready(0, reads_ready=(ReadReady(1, 1),))


def reads_where_it_has_no_entry(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    requests_read_index(rig)
    rig.ready(0, reads_ready=(ReadReady(1, 2),))


def reads_at_once_beside_a_later_leader(rig: Rig) -> None:
    rig.lead(0, 1)
    rig.lead(1, 2)
    requests_read_index(rig)
    rig.ready(0, reads_ready=(ReadReady(1, 0),))


def gets_stale_message(rig: Rig, **changes: object) -> None:
    """Node 0 in term 2, which gets a message of term 1."""
    rig.status(0, Role.FOLLOWER, 2)
    status = rig.world.nodes[0].status
    assert status is not None
    fact = StaleDelivery(
        what="Append", term=1, before=status, after=status, deadline_before=7, deadline_after=7, effects=""
    )
    rig.facts.stale(rig.world.nodes[0], msgspec.structs.replace(fact, **changes))


def follows_an_older_term(rig: Rig) -> None:
    rig.status(1, Role.CANDIDATE, 2)
    gets_stale_message(rig, after=rig.world.nodes[1].status)


def waits_longer_for_an_older_term(rig: Rig) -> None:
    gets_stale_message(rig, deadline_after=8)


def acts_for_an_older_term(rig: Rig) -> None:
    gets_stale_message(rig, effects="commit 3")


def syncs_again_after_a_failed_sync(rig: Rig) -> None:
    rig.facts.used_after_failed_sync(rig.world.nodes[0], "a sync", "/wals/1.seg")


def config_lags_behind_the_log(rig: Rig) -> None:
    body = encode_config(CONFIG)
    rig.ready(0, append=LogAppend(entries=(Entry(OpId(1, 1), EntryKind.CONFIG, 0, body),)))
    rig.status(0, Role.FOLLOWER, 1)


def config_outlives_its_entry(rig: Rig) -> None:
    body = encode_config(CONFIG)
    rig.ready(0, append=LogAppend(entries=(Entry(OpId(1, 1), EntryKind.CONFIG, 0, body),)))
    rig.ready(0, append=LogAppend(entries=(entry(2, 1),), replace_from=1))
    config = TabletConfig(op_id=OpId(1, 1), members=CONFIG.members)
    rig.status(0, Role.FOLLOWER, 2, config)


def config_committed_too_early(rig: Rig) -> None:
    body = encode_config(CONFIG)
    config = TabletConfig(op_id=OpId(1, 1), members=CONFIG.members)
    carrier = Entry(OpId(1, 1), EntryKind.CONFIG, 0, body)
    rig.ready(0, append=LogAppend(entries=(carrier,)), committed_config=config)


def starts_without_a_config_that_it_has_collected(rig: Rig) -> None:
    """The metadata has the config of the beginning, and the log the entries behind that of a later one."""
    carrier = Entry(OpId(1, 1), EntryKind.CONFIG, 1, encode_config(CONFIG))
    committed(rig, carrier, entry(1, 2))
    node = rig.world.nodes[0]
    node.flushed = OpId(1, 2)
    log = LogView(base=OpId(1, 1), last=OpId(1, 2), term_runs=((2, 1),))
    rig.facts.restarted(node, HardState(1, None), log, 1, CONFIG)
    rig.status(0, Role.FOLLOWER, 1)


def timestamp_does_not_increase_in_the_log(rig: Rig) -> None:
    rig.append(0, entry(1, 1, timestamp=9), entry(1, 2, timestamp=9))


def timestamp_is_far_ahead(rig: Rig) -> None:
    rig.world.nodes[2].clock_ahead_us_max = 99_000_000
    committed(rig, entry(1, 1, timestamp=timestamp(EPOCH_US + 10_000_001)))


def applies_an_uncommitted_entry(rig: Rig) -> None:
    rig.append(0, entry(1, 1))
    rig.apply(0, entry(1, 1))


def applies_with_another_effect(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.apply(1, entry(1, 1))


def applies_one_identity_twice(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.apply(0, entry(1, 2), applied(OpId(1, 2)))


def skips_a_write_that_never_took_effect(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1), skipped=True))


def acknowledges_another_payload(rig: Rig) -> None:
    imposed = write()
    imposed.imposed = True
    rig.facts.answered(imposed, done())


def answers_with_a_wrong_error(rig: Rig) -> None:
    history(rig)
    rig.facts.answered(write(), ClientAnswer(kind=AnswerKind.DONE, node=0, errors=((0, "NOT_FOUND"),)))


def accepts_an_unfit_row(rig: Rig) -> None:
    history(rig)
    operation = write()
    operation.rows = (HistoryRow(1, "v"), HistoryRow(2, "w", unfit=True))
    rig.facts.answered(operation, done())


def refuses_an_open_write_as_stale(rig: Rig) -> None:
    rig.facts.answered(write(), ClientAnswer(kind=AnswerKind.STALE, node=0))


def applies_a_write_that_no_client_started(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.facts.applied(rig.world.nodes[0], OpId(1, 1), [applied(OpId(1, 1))])


def applies_another_payload(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    begin(rig, write(), 1)
    rig.apply(0, entry(1, 1), msgspec.structs.replace(applied(OpId(1, 1)), digest=1))


def refuses_a_write_that_took_effect(rig: Rig) -> None:
    history(rig)
    rig.facts.answered(write(), ClientAnswer(kind=AnswerKind.REFUSED, node=0))


def applies_a_refused_write(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    begin(rig, write(), 1)
    rig.facts.answered(write(), ClientAnswer(kind=AnswerKind.REFUSED, node=0))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))


def answers_with_the_time_of_another_entry(rig: Rig) -> None:
    history(rig)
    rig.facts.answered(write(), ClientAnswer(kind=AnswerKind.DONE, node=0, timestamp=2))


def answers_without_the_time_of_the_entry(rig: Rig) -> None:
    """The client could not name a time at which its next scan sees the write."""
    history(rig)
    rig.facts.answered(write(), done(at=0))


SECOND = Schema(2, (*SCHEMA.columns, Column(id=3, name="a", type="int64", nullable=True)), (1,))


def alter(rig: Rig, index: int, schema: Schema, position: int = 0) -> None:
    rig.facts.schema_applied(rig.world.nodes[position], OpId(1, index), schema)


def a_schema_skips_a_version(rig: Rig) -> None:
    alter(rig, 1, msgspec.structs.replace(SECOND, version=3))


def a_second_schema_of_a_version_takes_effect(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    alter(rig, 2, msgspec.structs.replace(SCHEMA, version=2))


def replicas_apply_different_schemas(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    alter(rig, 1, msgspec.structs.replace(SCHEMA, version=2), position=1)


def a_schema_is_acknowledged_that_is_not_in_force(rig: Rig) -> None:
    rig.facts.altered(SECOND, taken=True)


def a_schema_is_refused_that_is_in_force(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    rig.facts.altered(SECOND, taken=False)


def rows_of_an_older_schema_take_effect(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    committed(rig, entry(1, 1), entry(1, 2))
    rig.apply(0, entry(1, 2), applied(OpId(1, 2)))


def acknowledges_a_write_that_was_never_applied(rig: Rig) -> None:
    rig.facts.answered(write(), done())


def acknowledged_write_vanishes(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.facts.answered(write(), done(at=1))
    rig.status(1, Role.FOLLOWER, 1)
    rig.world.nodes[1].durable.clear()
    rig.facts.at_end()


def read(rig: Rig, value: str | None) -> None:
    operation = begin(rig, write(0, ClientAction.READ), 10)
    rig.facts.answered(operation, done(value=value))


def reads_an_overwritten_value(rig: Rig) -> None:
    history(rig)
    read(rig, "a")


def reads_no_row_although_one_exists(rig: Rig) -> None:
    history(rig)
    read(rig, None)


def a_later_write_comes_earlier_in_the_log(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2))
    first = begin(rig, write(1, value="a"), 1)
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), 1))
    rig.facts.answered(first, done(at=2))
    second = begin(rig, write(2, value="b"), 2)
    rig.apply(1, entry(1, 1), applied(OpId(1, 1), 2))
    rig.facts.answered(second, done(at=1))


def recover(rig: Rig, base: OpId, *found: Entry, hint: int = 0) -> None:
    model = LogModel(base=ZERO, collectable=2, hint=2)
    model.entries = [entry(1, index) for index in (1, 2, 3)]
    last = found[-1].op_id if found else base
    state = LogState(base=base, last=last, commit_hint=hint)
    rig.facts.recovered(rig.world.nodes[0], LOG, state, list(found), model)


def log_loses_its_end(rig: Rig) -> None:
    recover(rig, ZERO, entry(1, 1), entry(1, 2))


def log_returns_a_hint_that_was_never_given(rig: Rig) -> None:
    recover(rig, ZERO, entry(1, 1), entry(1, 2), entry(1, 3), hint=3)


def log_begins_above_the_collectable_index(rig: Rig) -> None:
    recover(rig, OpId(1, 3))


def log_has_a_wrong_base(rig: Rig) -> None:
    recover(rig, OpId(0, 1), entry(1, 2), entry(1, 3))


def log_is_collected_that_the_slowest_replica_needs(rig: Rig) -> None:
    rig.ready(0, hard_state=HardState(1, NAMES[0]))
    for position in (0, 1):
        rig.append(position, entry(1, 1), entry(1, 2))
    rig.append(2, entry(1, 1))
    rig.ready(0, commit=2)
    rig.world.nodes[0].flushed = OpId(1, 2)
    rig.facts.collect(rig.world.nodes[0], LOG, 1)
    assert rig.violated is None
    rig.facts.collect(rig.world.nodes[0], LOG, 2)


def leader_cannot_catch_a_peer_up(rig: Rig) -> None:
    rig.ready(0, copy_requests=(CopyRequest(NAMES[2], 1),))


FAULTY: dict[str, list[Callable[[Rig], None]]] = {
    "election_safety": [two_leaders],
    "leader_append_only": [leader_replaces],
    "log_matching": [same_op_id_other_body, same_op_id_other_predecessor],
    "leader_completeness": [elected_without_committed],
    "commit_rule": [commits_an_older_term, commits_without_majority, commit_goes_back, starts_with_more_than_committed],
    "lease_exclusive": [reads_at_once_beside_a_later_leader],
    "read_index": [reads_before_its_first_entry, reads_below_what_is_committed, reads_where_it_has_no_entry],
    "stale_messages": [follows_an_older_term, waits_longer_for_an_older_term, acts_for_an_older_term],
    "failed_sync": [syncs_again_after_a_failed_sync],
    "terms_and_votes": [
        changes_its_vote,
        forgets_an_exposed_vote,
        starts_in_an_older_term,
        acts_on_a_term_that_was_not_handed_out,
    ],
    "persist_before_send": [
        sends_before_the_vote_is_saved,
        sends_before_the_log_is_durable,
        believes_an_entry_durable_that_is_not,
    ],
    "config_follows_log": [
        config_lags_behind_the_log,
        config_outlives_its_entry,
        config_committed_too_early,
        starts_without_a_config_that_it_has_collected,
    ],
    "hybrid_time": [timestamp_does_not_increase_in_the_log, timestamp_is_far_ahead],
    "state_machine_safety": [applies_an_uncommitted_entry, applies_with_another_effect],
    "exactly_once": [
        applies_one_identity_twice,
        skips_a_write_that_never_took_effect,
        acknowledges_another_payload,
        answers_with_a_wrong_error,
        accepts_an_unfit_row,
        refuses_an_open_write_as_stale,
        applies_a_write_that_no_client_started,
        applies_another_payload,
        refuses_a_write_that_took_effect,
        applies_a_refused_write,
        answers_with_the_time_of_another_entry,
        answers_without_the_time_of_the_entry,
    ],
    "schema_changes": [
        a_schema_skips_a_version,
        a_second_schema_of_a_version_takes_effect,
        replicas_apply_different_schemas,
        a_schema_is_acknowledged_that_is_not_in_force,
        a_schema_is_refused_that_is_in_force,
        rows_of_an_older_schema_take_effect,
    ],
    "acknowledged_writes": [acknowledges_a_write_that_was_never_applied, acknowledged_write_vanishes],
    "linearizability": [
        reads_an_overwritten_value,
        reads_no_row_although_one_exists,
        a_later_write_comes_earlier_in_the_log,
    ],
    "log_durability": [log_loses_its_end, log_returns_a_hint_that_was_never_given],
    "log_retention": [log_is_collected_that_the_slowest_replica_needs, leader_cannot_catch_a_peer_up],
    "log_base": [log_begins_above_the_collectable_index, log_has_a_wrong_base],
}
for faulty in (FAULTY_STORES, FAULTY_EPOCHS, FAULTY_MEMBERS, FAULTY_COPIES, FAULTY_LEADER_CHANGES):
    for name, stories in faulty.items():
        FAULTY.setdefault(name, []).extend(stories)
