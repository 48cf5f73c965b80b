"""Every invariant accepts what is legal and reports what is not, under its own name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from stelae.host.hybrid_clock import timestamp
from stelae.sim.clock import EPOCH_US
from stelae.sim.history import SCHEMA, Action, Answer, AnswerKind, Row
from stelae.sim.invariants import INVARIANTS
from stelae.sim.log_model import LogModel
from stelae.sim.world import Needs
from stelae.spi.consensus import HardState, LogAppend, Outbound, Role, TabletConfig, encode_config
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.schema import Column, Schema
from stelae.spi.wal import LogState
from tests.unit.sim.rig import CONFIG, LOG, NAMES, Rig, applied, begin, committed, done, entry, history, write
from tests.unit.sim.store_stories import FAULTLESS, FAULTY_STORES

# -- what must be reported ------------------------------------------------------------------------


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


def forgets_a_vote_it_showed(rig: Rig) -> None:
    node = rig.world.nodes[0]
    node.saved = HardState(4, NAMES[1])
    rig.watch.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, NAMES[1])))
    rig.restart(0, term=4)


def starts_in_an_older_term(rig: Rig) -> None:
    node = rig.world.nodes[0]
    node.saved = HardState(4, None)
    rig.watch.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, None)))
    rig.restart(0, term=3)


def acts_on_a_term_that_was_not_handed_out(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.status(0, Role.FOLLOWER, 2)
    assert node.status is not None
    node.hard_state = HardState(1, None)
    rig.watch.status(node, node.status)


def believes_durable_what_is_not(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.ready(0, append=LogAppend(entries=(entry(1, 1),)))
    rig.status(0, Role.FOLLOWER, 1)
    assert node.status is not None
    rig.watch.status(node, msgspec.structs.replace(node.status, durable_index=1))


def sends_before_the_vote_is_saved(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.watch.sent(node, Outbound(NAMES[1], CONFIG, 4), Needs(HardState(4, NAMES[1])))


def sends_before_the_log_is_durable(rig: Rig) -> None:
    node = rig.world.nodes[0]
    rig.ready(0, append=LogAppend(entries=(entry(1, 1),)))
    rig.watch.sent(node, Outbound(NAMES[1], CONFIG, 0), Needs(HardState(), OpId(1, 1)))


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


def time_goes_back_in_the_log(rig: Rig) -> None:
    rig.append(0, entry(1, 1, timestamp=9), entry(1, 2, timestamp=9))


def time_runs_away(rig: Rig) -> None:
    rig.world.nodes[2].clock_ahead_us_max = 99_000_000
    committed(rig, entry(1, 1, timestamp=timestamp(EPOCH_US + 10_000_001)))


def applies_what_is_not_committed(rig: Rig) -> None:
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


def skips_what_never_took_effect(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1), skipped=True))


def answers_an_imposition(rig: Rig) -> None:
    imposed = write()
    imposed.imposed = True
    rig.watch.answered(imposed, done())


def answers_an_error_that_was_not(rig: Rig) -> None:
    history(rig)
    rig.watch.answered(write(), Answer(kind=AnswerKind.DONE, node=0, errors=((0, "NOT_FOUND"),)))


def takes_a_row_that_is_unfit(rig: Rig) -> None:
    history(rig)
    operation = write()
    operation.rows = (Row(1, "v"), Row(2, "w", unfit=True))
    rig.watch.answered(operation, done())


def calls_an_open_write_stale(rig: Rig) -> None:
    rig.watch.answered(write(), Answer(kind=AnswerKind.STALE, node=0))


def applies_what_nobody_asked_for(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.watch.applied(rig.world.nodes[0], OpId(1, 1), [applied(OpId(1, 1))])


def applies_another_payload(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    begin(rig, write(), 1)
    rig.apply(0, entry(1, 1), msgspec.structs.replace(applied(OpId(1, 1)), digest=1))


def refuses_what_took_effect(rig: Rig) -> None:
    history(rig)
    rig.watch.answered(write(), Answer(kind=AnswerKind.REFUSED, node=0))


def applies_what_was_refused(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    begin(rig, write(), 1)
    rig.watch.answered(write(), Answer(kind=AnswerKind.REFUSED, node=0))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))


def answers_with_the_time_of_another_entry(rig: Rig) -> None:
    history(rig)
    rig.watch.answered(write(), Answer(kind=AnswerKind.DONE, node=0, timestamp=2))


SECOND = Schema(2, (*SCHEMA.columns, Column(id=3, name="a", type="int64", nullable=True)), (1,))


def alter(rig: Rig, index: int, schema: Schema, position: int = 0) -> None:
    rig.watch.schema_applied(rig.world.nodes[position], OpId(1, index), schema)


def a_schema_skips_a_version(rig: Rig) -> None:
    alter(rig, 1, msgspec.structs.replace(SECOND, version=3))


def a_second_schema_of_a_version_takes_effect(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    alter(rig, 2, msgspec.structs.replace(SCHEMA, version=2))


def replicas_apply_different_schemas(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    alter(rig, 1, msgspec.structs.replace(SCHEMA, version=2), position=1)


def a_schema_is_acknowledged_that_is_not_in_force(rig: Rig) -> None:
    rig.watch.altered(SECOND, taken=True)


def a_schema_is_refused_that_is_in_force(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    rig.watch.altered(SECOND, taken=False)


def rows_of_an_older_schema_take_effect(rig: Rig) -> None:
    alter(rig, 1, SECOND)
    committed(rig, entry(1, 1), entry(1, 2))
    rig.apply(0, entry(1, 2), applied(OpId(1, 2)))


def acknowledges_what_was_never_applied(rig: Rig) -> None:
    rig.watch.answered(write(), done())


def acknowledged_write_vanishes(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.watch.answered(write(), done())
    rig.status(1, Role.FOLLOWER, 1)
    rig.world.nodes[1].durable.clear()
    rig.watch.at_end()


def read(rig: Rig, value: str | None) -> None:
    operation = begin(rig, write(0, Action.READ), 10)
    rig.watch.answered(operation, done(value=value))


def reads_an_overwritten_value(rig: Rig) -> None:
    history(rig)
    read(rig, "a")


def reads_nothing_where_a_row_is(rig: Rig) -> None:
    history(rig)
    read(rig, None)


def a_later_write_comes_earlier_in_the_log(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2))
    first = begin(rig, write(1, value="a"), 1)
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), 1))
    rig.watch.answered(first, done())
    second = begin(rig, write(2, value="b"), 2)
    rig.apply(1, entry(1, 1), applied(OpId(1, 1), 2))
    rig.watch.answered(second, done())


def recover(rig: Rig, base: OpId, *found: Entry, hint: int = 0) -> None:
    model = LogModel(base=ZERO, collectable=2, hint=2)
    model.entries = [entry(1, index) for index in (1, 2, 3)]
    last = found[-1].op_id if found else base
    state = LogState(base=base, last=last, commit_hint=hint)
    rig.watch.recovered(rig.world.nodes[0], LOG, state, list(found), model)


def log_loses_its_end(rig: Rig) -> None:
    recover(rig, ZERO, entry(1, 1), entry(1, 2))


def log_invents_a_hint(rig: Rig) -> None:
    recover(rig, ZERO, entry(1, 1), entry(1, 2), entry(1, 3), hint=3)


def log_begins_past_what_may_go(rig: Rig) -> None:
    recover(rig, OpId(1, 3))


def log_forgets_its_base(rig: Rig) -> None:
    recover(rig, OpId(0, 1), entry(1, 2), entry(1, 3))


FAULTY: dict[str, list[Callable[[Rig], None]]] = {
    "election_safety": [two_leaders],
    "leader_append_only": [leader_replaces],
    "log_matching": [same_op_id_other_body, same_op_id_other_predecessor],
    "leader_completeness": [elected_without_committed],
    "commit_rule": [commits_an_older_term, commits_without_majority, commit_goes_back, starts_with_more_than_committed],
    "terms_and_votes": [
        changes_its_vote,
        forgets_a_vote_it_showed,
        starts_in_an_older_term,
        acts_on_a_term_that_was_not_handed_out,
    ],
    "persist_before_send": [
        sends_before_the_vote_is_saved,
        sends_before_the_log_is_durable,
        believes_durable_what_is_not,
    ],
    "config_follows_log": [config_lags_behind_the_log, config_outlives_its_entry, config_committed_too_early],
    "hybrid_time": [time_goes_back_in_the_log, time_runs_away],
    "state_machine_safety": [applies_what_is_not_committed, applies_with_another_effect],
    "exactly_once": [
        applies_one_identity_twice,
        skips_what_never_took_effect,
        answers_an_imposition,
        answers_an_error_that_was_not,
        takes_a_row_that_is_unfit,
        calls_an_open_write_stale,
        applies_what_nobody_asked_for,
        applies_another_payload,
        refuses_what_took_effect,
        applies_what_was_refused,
        answers_with_the_time_of_another_entry,
    ],
    "schema_changes": [
        a_schema_skips_a_version,
        a_second_schema_of_a_version_takes_effect,
        replicas_apply_different_schemas,
        a_schema_is_acknowledged_that_is_not_in_force,
        a_schema_is_refused_that_is_in_force,
        rows_of_an_older_schema_take_effect,
    ],
    "acknowledged_writes": [acknowledges_what_was_never_applied, acknowledged_write_vanishes],
    "linearizability": [
        reads_an_overwritten_value,
        reads_nothing_where_a_row_is,
        a_later_write_comes_earlier_in_the_log,
    ],
    "log_durability": [log_loses_its_end, log_invents_a_hint],
    "log_base": [log_begins_past_what_may_go, log_forgets_its_base],
}
for name, stories in FAULTY_STORES.items():
    FAULTY.setdefault(name, []).extend(stories)


@pytest.mark.parametrize(
    ("invariant", "story"),
    [(name, story) for name, stories in FAULTY.items() for story in stories],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_invariant_reports_what_must_not_happen(invariant: str, story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.violated == invariant


def test_every_invariant_is_shown_to_bite() -> None:
    assert set(FAULTY) == {invariant.name for invariant in INVARIANTS}


# -- what must not be reported --------------------------------------------------------------------


def test_an_ordinary_history_violates_nothing() -> None:
    rig = Rig()
    history(rig)
    for position in (1, 2):
        for index in (1, 2):
            rig.apply(position, entry(1, index), applied(OpId(1, index), index))
    read(rig, "b")
    rig.watch.at_end()
    assert rig.violated is None


@pytest.mark.parametrize("story", FAULTLESS, ids=lambda story: story.__name__)
def test_an_ordinary_life_of_a_store_violates_nothing(story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.watch.violation is None


def test_a_read_that_overlaps_a_write_may_see_either_state() -> None:
    for seen in ("a", "b"):
        rig = Rig()
        committed(rig, entry(1, 1), entry(1, 2))
        first = begin(rig, write(1, value="a"), 1)
        rig.apply(0, entry(1, 1), applied(OpId(1, 1), 1))
        rig.watch.answered(first, done())
        begin(rig, write(2, value="b"), 2)
        reading = begin(rig, write(0, Action.READ), 3)
        rig.apply(0, entry(1, 2), applied(OpId(1, 2), 2))
        rig.watch.answered(reading, done(value=seen))
        assert rig.violated is None, seen


def test_rows_of_an_operation_change_their_keys_together_and_the_last_of_a_key_stands() -> None:
    rig = Rig()
    committed(rig, entry(1, 1))
    operation = write()
    operation.rows = (Row(1, "a"), Row(2, "b"), Row(1, "c"), Row(2, "d"))
    begin(rig, operation, 1)
    request = msgspec.structs.replace(applied(OpId(1, 1)), errors=((3, "NOT_FOUND"),))
    rig.apply(0, entry(1, 1), request)
    assert rig.watch.expected_rows() == {1: ("c",), 2: ("b",)}
    read(rig, "c")
    assert rig.violated is None
    read(rig, "a")
    assert rig.violated == "linearizability"


def test_a_repetition_that_is_skipped_and_answered_alike_is_fine() -> None:
    rig = Rig()
    committed(rig, entry(1, 1), entry(1, 2))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.watch.answered(write(), done())
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), skipped=True))
    rig.watch.answered(write(), done())
    assert rig.violated is None


def test_a_follower_may_replace_its_suffix_and_a_deposed_leader_too() -> None:
    rig = Rig()
    rig.append(0, entry(1, 1), entry(1, 2))
    rig.lead(0, 1)
    rig.status(0, Role.FOLLOWER, 2)
    rig.append(0, entry(2, 2), replace_from=2)
    assert rig.violated is None


def test_the_first_violation_stands() -> None:
    rig = Rig()
    two_leaders(rig)
    same_op_id_other_body(rig)
    assert rig.violated == "election_safety"
