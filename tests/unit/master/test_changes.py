"""Changes of tables: what each comes to, what is refused and how, and that each is made once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.partition.schema import KeyRange, PartitionSchema
from stelae.protocol.actions import DeleteReplica
from stelae.protocol.catalog_names import ServerMode, TableId, TableState, TabletState
from stelae.protocol.master_messages import (
    AddColumn,
    AddRange,
    AlterTable,
    CatalogReadRequest,
    ChangeReply,
    DeleteTable,
    DropColumn,
    DropRange,
    GetTable,
    ListServers,
    ListTables,
    RecallTable,
    RenameColumn,
    RenameTable,
    ServerList,
    SetDefault,
    SetServerMode,
    TableDescription,
    TableList,
)
from stelae.server.master.core.events import (
    AskPolicy,
    CaughtUp,
    Confirm,
    Confirmed,
    MasterLeaderChanged,
    ReadAsked,
    Refuse,
    Replicate,
    Reply,
)
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.core.records import RequestRecord
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, OpId
from stelae.spi.schema import Schema
from tests.unit.master.master_with_servers import (
    ME,
    SCHEMA,
    SERVERS,
    SETTINGS,
    WALL_US,
    MasterWithServers,
    changes,
    create,
    full,
    leading,
    only,
    refusals,
    sent,
    status,
)


@pytest.fixture
def cluster() -> MasterWithServers:
    """A leader that hears three servers."""
    return leading()


def told(effects: list[Any]) -> list[Any]:
    return [reply.body for reply in only(effects, Reply)]


def refused(cluster: MasterWithServers, change: Any, sequence: int = 9) -> Refuse:
    """What a change is refused with, once that is committed."""
    cluster.ask(change, sequence)
    (found,) = only(cluster.commit(), Refuse)
    assert not found.retryable
    return found


def altered(cluster: MasterWithServers, *steps: Any, table: str = "readings", sequence: int = 20) -> ChangeReply:
    cluster.ask(AlterTable(table=table, steps=steps), sequence)
    (reply,) = told(cluster.commit())
    assert isinstance(reply, ChangeReply)
    return reply


def describe(cluster: MasterWithServers, table: str = "readings") -> TableDescription:
    (found,) = told(cluster.read(GetTable(table=table)))
    assert isinstance(found, TableDescription)
    return found


# -- create ------------------------------------------------------------------------------------------


def test_a_new_table_is_one_batch_with_its_tablets_and_its_answer(cluster: MasterWithServers) -> None:
    (effect,) = only(cluster.ask(create(buckets=4)), Replicate)
    kinds = [record.key.kind for record in effect.batch.puts]
    assert sorted(kinds) == ["request", "table", *["tablet"] * 4]
    assert cluster.core.catalog.tables == {}


def test_nobody_is_answered_or_asked_to_act_before_the_batch_is_applied(cluster: MasterWithServers) -> None:
    effects = cluster.ask(create())
    assert only(effects, Reply) == [] and sent(effects) == []
    assert told(cluster.read(ListTables())) == [TableList(tables=())]
    (reply,) = told(cluster.commit())
    assert reply.table_id in cluster.core.catalog.tables


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"name": ""}, "BAD_CHANGE", "1 to 256"),
        ({"name": "a\nb"}, "BAD_CHANGE", "printable"),
        ({"schema": b"junk"}, "BAD_CHANGE", "not a schema"),
        ({"partition_schema": b"junk"}, "BAD_CHANGE", "partition"),
        ({"schema": Schema(2, SCHEMA.columns, SCHEMA.key).to_bytes()}, "BAD_CHANGE", "version 1"),
        ({"replication_factor": 2}, "BAD_CHANGE", "odd"),
        ({"replication_factor": 9}, "BAD_CHANGE", "1 to 7"),
        ({"consensus": "../raft"}, "BAD_IDENTIFIER", "usable"),
        ({"partition_schema": PartitionSchema((), (2,)).to_bytes()}, "BAD_PARTITIONING", "key"),
    ],
)
def test_a_table_that_cannot_be_is_refused_with_what_would_be_right(
    cluster: MasterWithServers, changed: dict[str, Any], code: str, words: str
) -> None:
    found = refused(cluster, msgspec.structs.replace(create(), **changed))
    assert found.code == code
    assert words in found.detail


def test_a_name_that_is_taken_is_refused(cluster: MasterWithServers) -> None:
    cluster.create_running()
    assert refused(cluster, create()).code == "TABLE_EXISTS"


def test_a_master_that_has_just_started_does_not_say_that_there_are_too_few_servers() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    (found,) = only(cluster.ask(create()), Refuse)
    assert (found.code, found.retryable) == ("UNAVAILABLE", True)
    cluster.pass_ms(SETTINGS.server_silent_ms + 1)
    assert refused(cluster, create()).code == "TOO_FEW_SERVERS"


def test_a_change_that_does_not_fit_one_batch_is_refused_with_both_sizes() -> None:
    cluster = MasterWithServers(MasterSettings(batch_bytes_max=64 << 10))
    cluster.lead(1)
    cluster.hear()
    found = refused(cluster, create(buckets=1000))
    assert found.code == "TOO_LARGE"
    assert str(64 << 10) in found.detail and "several steps" in found.detail


def test_a_table_of_the_most_tablets_fits_one_batch_and_so_does_its_end() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    (made,) = only(cluster.ask(create(buckets=1024)), Replicate)
    cluster.create_running(create(name="second", buckets=1024))
    (gone,) = only(cluster.ask(DeleteTable(table="second"), 5), Replicate)
    most = SETTINGS.tablets_per_table_max / 1024
    assert max(made.batch.size_bytes, gone.batch.size_bytes) * most < SETTINGS.batch_bytes_max


def test_more_tablets_than_servers_can_take_at_once_are_refused_with_how_many_they_can(
    cluster: MasterWithServers,
) -> None:
    found = refused(cluster, create(buckets=1000, ranges=10))
    assert found.code == "BAD_CHANGE" and "10000 on each of 3 live tablet servers" in found.detail
    assert "may bring 1000" in found.detail and "up to 1000 tablets now" in found.detail


def test_a_tablet_that_does_not_run_says_what_it_waits_for(cluster: MasterWithServers) -> None:
    cluster.policy_answers = False
    cluster.ask(create(buckets=1))
    asked = only(cluster.commit(), AskPolicy)
    assert "3 live tablet servers to be placed on" in describe(cluster).tablets[0].waits_for
    cluster.step(cluster.plan(asked[-1]))
    cluster.commit()
    (place,) = describe(cluster).tablets
    assert all(f"host-{n}:7051 (LIVE)" in place.waits_for for n in (1, 2, 3))
    tablet = cluster.core.catalog.tablets[place.tablet_id]
    for server in SERVERS[:3]:
        cluster.heartbeat(server, full(status(tablet.tablet_id, tablet.config, op_id=OpId(0, 0))))
    assert describe(cluster).tablets[0].waits_for == "its replicas to elect a leader"


def test_a_tablet_for_which_there_are_too_few_servers_by_now_says_how_many_to_start(cluster: MasterWithServers) -> None:
    cluster.policy_answers = False
    cluster.ask(create(buckets=1))
    cluster.commit()
    cluster.now_us += (SETTINGS.server_silent_ms + 1) * 1000
    cluster.heartbeat(SERVERS[0])
    assert "1 are live: start 2 more, or drop the table" in describe(cluster).tablets[0].waits_for


def test_two_tables_of_one_name_at_once_are_one_table(cluster: MasterWithServers) -> None:
    cluster.ask(create(), 1, "ann")
    assert cluster.ask(create(), 1, "bob") == []
    effects = cluster.commit()
    assert [type(body) for body in told(effects)] == [ChangeReply]
    assert refusals(effects + cluster.commit()) == ["TABLE_EXISTS"]
    assert len(cluster.core.catalog.tables) == 1


# -- exactly once ------------------------------------------------------------------------------------


def test_a_change_that_comes_again_has_the_first_answer_and_one_effect(cluster: MasterWithServers) -> None:
    cluster.ask(create())
    (first,) = told(cluster.commit())
    assert told(cluster.ask(create())) == [first]
    cluster.follow(2)
    cluster.lead(3)
    assert told(cluster.ask(create())) == [first]
    assert len(cluster.core.catalog.tables) == 1


def test_a_copy_that_comes_while_the_first_is_under_way_waits_for_it(cluster: MasterWithServers) -> None:
    cluster.ask(create())
    assert cluster.ask(create()) == []
    first, second = told(cluster.commit())
    assert first == second


def test_an_identity_belongs_to_one_change(cluster: MasterWithServers) -> None:
    cluster.create_running()
    assert refusals(cluster.ask(create("other"))) == ["PAYLOAD_MISMATCH"]


def test_a_refusal_stands_though_the_reason_is_gone(cluster: MasterWithServers) -> None:
    cluster.create_running()
    assert refused(cluster, create(), 2).code == "TABLE_EXISTS"
    cluster.ask(DeleteTable(table="readings"), 3)
    cluster.commit()
    assert refusals(cluster.ask(create(), 2)) == ["TABLE_EXISTS"]
    assert cluster.core.catalog.names == {}


@pytest.mark.parametrize(("sequence", "client"), [(0, "ann"), (1 << 63, "ann"), (1, "../ann")])
def test_an_identity_that_cannot_be_is_refused(cluster: MasterWithServers, sequence: int, client: str) -> None:
    assert refusals(cluster.ask(create(), sequence, client)) in (["BAD_REQUEST"], ["BAD_IDENTIFIER"])


def test_answers_are_forgotten_behind_a_floor_that_refuses_what_comes_late(cluster: MasterWithServers) -> None:
    cluster.create_running()
    cluster.now_us += SETTINGS.answer_keep_ms * 1000
    cluster.pass_ms(SETTINGS.scan_interval_ms)
    cluster.commit()
    assert cluster.core.catalog.requests != {}
    cluster.pass_ms(SETTINGS.scan_interval_ms)
    cluster.commit()
    assert cluster.core.catalog.requests == {}
    assert refusals(cluster.ask(create())) == ["STALE_CHANGE"]
    cluster.pass_ms(SETTINGS.client_keep_ms)
    cluster.commit()
    assert cluster.core.catalog.clients == {}


# -- alter -------------------------------------------------------------------------------------------


def test_steps_are_taken_in_order_and_make_one_version(cluster: MasterWithServers) -> None:
    cluster.create_running()
    steps = (
        AddColumn(name="w", type="int64"),
        RenameColumn(name="v", to="value"),
        SetDefault(name="w", default=5),
        DropColumn(name="value"),
        AddColumn(name="v", type="string"),
    )
    assert altered(cluster, *steps).schema_version == 2
    (table,) = cluster.core.catalog.tables.values()
    assert [(c.id, c.name, c.default) for c in table.newest.columns] == [(1, "k", None), (3, "w", 5), (4, "v", None)]
    assert table.next_column_id == 5


def test_an_id_of_a_dropped_column_is_never_given_out_again(cluster: MasterWithServers) -> None:
    cluster.create_running()
    altered(cluster, AddColumn(name="w", type="int64"), DropColumn(name="w"), sequence=2)
    altered(cluster, AddColumn(name="x", type="int64"), sequence=3)
    (table,) = cluster.core.catalog.tables.values()
    assert table.newest.by_name["x"].id == 4


def test_clients_see_the_old_schema_until_every_leader_knows_the_new_one(cluster: MasterWithServers) -> None:
    tablets = cluster.create_running()
    altered(cluster, AddColumn(name="w", type="int64"))
    assert Schema.from_bytes(describe(cluster).schema).version == 1
    config = cluster.core.catalog.tablets[tablets[0]].config
    cluster.heartbeat(SERVERS[0], changes(status(tablets[0], config, leads=True, version=2)))
    cluster.commit()
    assert describe(cluster).state is TableState.ALTERING
    cluster.heartbeat(SERVERS[0], changes(status(tablets[1], config, leads=True, version=2), since=2, upto=3))
    cluster.commit()
    assert describe(cluster).state is TableState.RUNNING
    assert Schema.from_bytes(describe(cluster).schema).version == 2


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (AddColumn(name="v", type="int64"), "SCHEMA_MISMATCH", "twice"),
        (AddColumn(name="w", type="int65"), "SCHEMA_MISMATCH", "known"),
        (AddColumn(name="w", type="int64", nullable=False), "BAD_CHANGE", "default"),
        (DropColumn(name="k"), "BAD_CHANGE", "key"),
        (DropColumn(name="nix"), "BAD_CHANGE", "it has: k, v"),
        (RenameColumn(name="v", to="k"), "SCHEMA_MISMATCH", "twice"),
        (SetDefault(name="v", default="text"), "SCHEMA_MISMATCH", "is not a plain int64"),
        (RenameTable(to="other"), "TABLE_EXISTS", "other"),
        (AddRange(range=KeyRange(b"a", b"b")), "BAD_PARTITIONING", "columns"),
        (DropRange(range=KeyRange(b"a", b"b")), "BAD_CHANGE", "none of the 1"),
        (DropRange(range=KeyRange()), "BAD_CHANGE", "last range"),
    ],
)
def test_a_step_that_cannot_be_is_refused_and_none_is_taken(
    cluster: MasterWithServers, step: Any, code: str, words: str
) -> None:
    cluster.create_running()
    cluster.ask(create("other"), 2)
    cluster.commit()
    before = cluster.core.catalog.tables
    steps = (AddColumn(name="before", type="int64"), step)
    found = refused(cluster, AlterTable(table="readings", steps=steps))
    assert found.code == code
    assert words in found.detail
    assert cluster.core.catalog.tables is before


def test_a_table_can_be_renamed_and_its_old_name_taken_at_once(cluster: MasterWithServers) -> None:
    cluster.create_running()
    altered(cluster, RenameTable(to="other"))
    assert refused(cluster, DeleteTable(table="readings")).code == "NO_TABLE"
    cluster.ask(create(), 10)
    assert isinstance(told(cluster.commit())[0], ChangeReply)
    assert set(cluster.core.catalog.names) == {"readings", "other"}


# -- delete, recall ----------------------------------------------------------------------------------


def test_a_deleted_table_and_its_tablets_go_together_and_are_remembered_small(cluster: MasterWithServers) -> None:
    cluster.create_running()
    cluster.ask(DeleteTable(table="readings"), 2)
    cluster.commit()
    (table,) = cluster.core.catalog.tables.values()
    assert (table.state, table.schema) == (TableState.REMOVED, b"")
    assert {t.state for t in cluster.core.catalog.tablets.values()} == {TabletState.REMOVED}
    assert told(cluster.read(ListTables(soft_deleted=True))) == [TableList(tables=())]


def test_a_soft_deleted_table_is_gone_for_clients_keeps_its_replicas_and_comes_back(cluster: MasterWithServers) -> None:
    tablets = cluster.create_running()
    cluster.ask(DeleteTable(table="readings", keep_ms=60_000), 2)
    effects = cluster.commit() + cluster.pass_ms(30_000)
    assert sent(effects, DeleteReplica) == []
    assert refusals(cluster.read(GetTable(table="readings"))) == ["NO_TABLE"]
    (found,) = told(cluster.read(ListTables(soft_deleted=True)))
    cluster.ask(RecallTable(table_id=found.tables[0].table_id), 3)
    cluster.commit()
    config = cluster.core.catalog.tablets[tablets[0]].config
    cluster.heartbeat(SERVERS[0], full(*(status(t, config, leads=True) for t in tablets)))
    cluster.commit()
    assert describe(cluster).state is TableState.RUNNING


def test_a_soft_deleted_table_whose_time_is_over_is_removed_first_and_its_replicas_after(
    cluster: MasterWithServers,
) -> None:
    cluster.create_running()
    cluster.ask(DeleteTable(table="readings", keep_ms=1_000), 2)
    cluster.commit()
    effects = cluster.pass_ms(1_001)
    assert sent(effects, DeleteReplica) == []
    assert len(only(effects, Replicate)) == 1
    assert len(sent(cluster.commit(), DeleteReplica)) == 6
    (table,) = cluster.core.catalog.tables.values()
    assert table.state is TableState.REMOVED
    assert refused(cluster, RecallTable(table_id=table.table_id)).code == "BAD_CHANGE"


def test_a_recalled_table_may_take_another_name_when_its_own_is_taken(cluster: MasterWithServers) -> None:
    cluster.create_running()
    cluster.ask(DeleteTable(table="readings", keep_ms=60_000), 2)
    cluster.commit()
    (table_id,) = cluster.core.catalog.tables
    cluster.ask(create(), 3)
    cluster.commit()
    assert refused(cluster, RecallTable(table_id=table_id), 4).code == "TABLE_EXISTS"
    cluster.ask(RecallTable(table_id=table_id, name="back"), 5)
    assert isinstance(told(cluster.commit())[0], ChangeReply)


def test_a_soft_deleted_table_can_be_deleted_for_good_by_its_id(cluster: MasterWithServers) -> None:
    cluster.create_running()
    cluster.ask(DeleteTable(table="readings", keep_ms=60_000), 2)
    cluster.commit()
    (table_id,) = cluster.core.catalog.tables
    cluster.ask(DeleteTable(table=table_id), 3)
    cluster.commit()
    assert cluster.core.catalog.tables[TableId(table_id)].state is TableState.REMOVED


def test_the_mode_of_a_server_is_kept_and_of_an_unknown_one_refused(cluster: MasterWithServers) -> None:
    cluster.ask(SetServerMode(node_id=SERVERS[0], mode=ServerMode.RETIRING))
    cluster.commit()
    (found,) = told(cluster.read(ListServers()))
    assert isinstance(found, ServerList)
    assert [line.mode for line in found.servers] == [ServerMode.RETIRING, ServerMode.NORMAL, ServerMode.NORMAL]
    assert refused(cluster, SetServerMode(node_id=NodeId("f" * 32), mode=ServerMode.NORMAL)).code == "BAD_CHANGE"


# -- outcomes ----------------------------------------------------------------------------------------


def test_an_unknown_outcome_keeps_its_locks_until_its_batch_turns_up(cluster: MasterWithServers) -> None:
    cluster.ask(create())
    proposed = list(cluster.proposed)
    cluster.decide(BatchOutcome.UNKNOWN)
    assert cluster.ask(create(), 1, "bob") == []
    assert cluster.core.status().waiting == 1
    cluster.step(cluster._entry(proposed[0].batch))
    assert cluster.core.status().waiting == 0
    assert refusals(cluster.commit()) == ["TABLE_EXISTS"]
    assert len(told(cluster.ask(create()))) == 1


def test_who_waits_is_sent_on_when_the_leader_steps_down(cluster: MasterWithServers) -> None:
    cluster.ask(create())
    cluster.ask(create(), 1, "bob")
    cluster.step()
    effects = cluster.follow(2)
    assert sorted(refusals(effects)) == ["NOT_LEADER", "OUTCOME_UNKNOWN"]
    assert {refuse.leader for refuse in only(effects, Refuse)} == {"b" * 32}


def test_a_leader_serves_nobody_before_an_entry_of_its_own_term_is_applied(cluster: MasterWithServers) -> None:
    cluster.follow(2)
    cluster.step(MasterLeaderChanged(3, ME))
    assert refusals(cluster.ask(create())) == ["NOT_LEADER"]
    assert refusals(cluster.read(ListTables())) == ["NOT_LEADER"]
    assert cluster.heartbeat(SERVERS[0], full()).term == 0
    cluster.term = 3
    cluster.step(cluster._entry(None))
    assert refusals(cluster.ask(create())) == []


# -- reads -------------------------------------------------------------------------------------------


def test_a_linearizable_read_is_confirmed_by_a_majority_first(cluster: MasterWithServers) -> None:
    effects = cluster.step(ReadAsked(7, CatalogReadRequest(question=ListTables())))
    assert effects == [Confirm(7)]
    assert refusals(cluster.step(Confirmed(7, False))) == ["NOT_LEADER"]


def test_a_follower_answers_within_the_staleness_that_is_stated_and_not_beyond() -> None:
    cluster = MasterWithServers()
    cluster.follow(1)
    cluster.step(CaughtUp(WALL_US + cluster.now_us))
    cluster.pass_ms(900)
    assert told(cluster.read(ListTables(), staleness_ms=1_000)) == [TableList(tables=())]
    cluster.pass_ms(200)
    assert refusals(cluster.read(ListTables(), staleness_ms=1_000)) == ["TOO_STALE"]
    assert refusals(cluster.read(ListTables())) == ["NOT_LEADER"]


def test_a_table_that_is_being_made_has_no_members_to_write_to(cluster: MasterWithServers) -> None:
    cluster.ask(create())
    cluster.commit()
    assert {place.members for place in describe(cluster).tablets} == {()}


def test_every_answer_is_in_the_batch_of_its_change(cluster: MasterWithServers) -> None:
    effects = cluster.ask(create())
    (batch,) = [e.batch for e in only(effects, Replicate)]
    (kept,) = [r for r in batch.puts if isinstance(r, RequestRecord)]
    assert (kept.client_id, kept.sequence) == ("ann", 1)
