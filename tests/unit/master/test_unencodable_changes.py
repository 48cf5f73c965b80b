"""Changes with numbers and values that no record can hold: each is refused, and the master goes on.

msgpack has no integers above 2**64 - 1. A record with a greater one ended each master in turn, because a client asks
the next one again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.partition.schema import KeyRange
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_messages import AddColumn, AlterTable, ChangeRequest, DropRange, SetDefault
from stelae.server.master.core import change_requests
from stelae.server.master.core.events import Reply
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import ClientId
from stelae.spi.schema import COLUMN_ID_MAX, VERSION_MAX, Column, Schema
from stelae.wire.refusals import TEXT_LENGTH_MAX
from tests.unit.master.master_with_servers import SCHEMA, MasterWithServers, create, leading, only, refusals
from tests.unit.master.test_adopted_tables import ADOPT, adopt
from tests.unit.master.test_changes import altered, refused

HUGE = 2**64 - 1
"""The greatest integer that a message can hold."""


@pytest.fixture
def cluster() -> MasterWithServers:
    return leading()


def schema_of(column_id: int, version: int = 1) -> bytes:
    """The bytes of a schema with one column, which may not be valid."""
    return msgspec.msgpack.encode([version, [[column_id, "k", "string", False, None]], [column_id]])


def goes_on(cluster: MasterWithServers) -> None:
    """Check that the master carries out another change."""
    cluster.ask(create("another"), 50)
    assert only(cluster.commit(), Reply) and "another" in cluster.core.catalog.names


@pytest.mark.parametrize("column_id", [COLUMN_ID_MAX + 1, 2**63, HUGE])
def test_a_table_with_a_column_id_above_the_bound_is_refused(cluster: MasterWithServers, column_id: int) -> None:
    found = refused(cluster, msgspec.structs.replace(create(buckets=1), schema=schema_of(column_id)))
    assert found.code == "BAD_CHANGE" and f"id {column_id}" in found.detail and str(COLUMN_ID_MAX) in found.detail
    goes_on(cluster)


def test_a_column_cannot_be_added_once_all_ids_are_used(cluster: MasterWithServers) -> None:
    columns = (*SCHEMA.columns, Column(id=COLUMN_ID_MAX, name="w", type="int64", nullable=True))
    cluster.create_running(msgspec.structs.replace(create(), schema=Schema(1, columns, (1,)).to_bytes()))
    found = refused(cluster, AlterTable(table="readings", steps=(AddColumn(name="x", type="int64"),)))
    assert found.code == "SCHEMA_MISMATCH" and str(COLUMN_ID_MAX) in found.detail
    goes_on(cluster)


@pytest.mark.parametrize("next_id", [COLUMN_ID_MAX + 2, 2**63, HUGE])
def test_a_table_with_a_next_column_id_above_the_bound_is_not_adopted(cluster: MasterWithServers, next_id: int) -> None:
    found = refused(cluster, msgspec.structs.replace(ADOPT, next_column_id=next_id))
    assert found.code == "BAD_CHANGE" and f"next column id {next_id}" in found.detail
    assert str(COLUMN_ID_MAX + 1) in found.detail
    adopt(cluster, next_column_id=COLUMN_ID_MAX)
    altered(cluster, AddColumn(name="w", type="int64"))
    goes_on(cluster)


@pytest.mark.parametrize("version", [VERSION_MAX + 1, HUGE])
@pytest.mark.parametrize("field", ["schema", "applied"])
def test_a_table_with_a_schema_version_above_the_bound_is_not_adopted(
    cluster: MasterWithServers, version: int, field: str
) -> None:
    found = refused(cluster, msgspec.structs.replace(ADOPT, **{field: schema_of(1, version)}))
    assert found.code == "BAD_CHANGE" and f"version {version}" in found.detail and str(VERSION_MAX) in found.detail
    goes_on(cluster)


def test_a_schema_of_the_last_version_cannot_be_changed(cluster: MasterWithServers) -> None:
    adopt(cluster, schema=Schema(VERSION_MAX, SCHEMA.columns, SCHEMA.key).to_bytes())
    found = refused(cluster, AlterTable(table="readings", steps=(AddColumn(name="x", type="int64"),)))
    assert found.code == "SCHEMA_MISMATCH" and str(VERSION_MAX) in found.detail
    goes_on(cluster)


@pytest.mark.parametrize(("opening", "kind"), [(b"\x91", "list"), (b"\x81\xa1a", "map")])
@pytest.mark.parametrize("step", [AddColumn(name="w", type="int64", default=7777), SetDefault(name="v", default=7777)])
def test_a_default_that_is_a_list_or_a_map_is_refused_when_it_is_decoded(step: Any, opening: bytes, kind: str) -> None:
    """At some depths it could be decoded, and not be encoded again for the digest, which ended the master."""
    change = AlterTable(table="readings", steps=(step,))
    sent = encode(ChangeRequest(client_id=ClientId("ann"), sequence=1, first_incomplete=1, change=change))
    before, after = sent.split(msgspec.msgpack.encode(7777))
    for depth in (1, 100, *range(900, 1000), 100_000):
        with pytest.raises(CallerError, match=f"the default of column '[vw]' is a {kind}|recursion"):
            decode(before + opening * depth + b"\x01" + after, ChangeRequest)
        if depth <= 100:
            with pytest.raises(SchemaMismatch, match=kind):
                decode(before + opening * depth + b"\x01" + after, ChangeRequest)


@pytest.mark.parametrize("value", [2**63, HUGE])
def test_a_default_that_its_type_cannot_hold_is_refused(cluster: MasterWithServers, value: int) -> None:
    cluster.create_running()
    for sequence, step in enumerate((AddColumn("w", "int64", True, value), SetDefault("v", value)), 30):
        found = refused(cluster, AlterTable(table="readings", steps=(step,)), sequence)
        assert found.code == "SCHEMA_MISMATCH" and str(value) in found.detail
    goes_on(cluster)


# -- errors that nobody expects ----------------------------------------------------------------------


def broken(*_: object) -> Any:
    raise OverflowError("can't serialize ints")


def test_an_unexpected_error_of_planning_refuses_one_request_for_good_and_is_logged(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = cluster.core.catalog.tables
    with monkeypatch.context() as patch:
        patch.setattr(change_requests, "plan_change", broken)
        found = refused(cluster, create("other"), 2)
    assert found.code == "CHANGE_FAILED" and "OverflowError: can't serialize ints" in found.detail
    assert cluster.core.catalog.tables is before
    (logged,) = [record for record in caplog.records if record.exc_info]
    assert "CreateTable client=ann sequence=2" in logged.getMessage()
    assert refusals(cluster.ask(create("other"), 2)) == ["CHANGE_FAILED"], "it is on record"
    goes_on(cluster)


def test_a_request_whose_refusal_cannot_be_put_on_record_is_refused_without_one(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ChangeRequest, "digest", property(broken))
        effects = cluster.ask(create("other"), 2)
    assert refusals(effects) == ["INTERNAL"] and cluster.proposed == []
    assert [bool(record.exc_info) for record in caplog.records] == [True, True]
    cluster.ask(create("other"), 2)
    assert only(cluster.commit(), Reply), "it left no lock"
    goes_on(cluster)


def test_an_unexpected_error_of_a_request_that_waited_leaves_the_others_waiting(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ask(create(), 1, "ann")
    cluster.ask(create(), 1, "bob")
    cluster.ask(create(), 1, "eve")
    plan = change_requests.plan_change
    left = iter([broken])
    monkeypatch.setattr(change_requests, "plan_change", lambda *given: next(left, plan)(*given))
    effects = cluster.commit() + cluster.commit()
    assert sorted(refusals(effects)) == ["CHANGE_FAILED", "TABLE_EXISTS"]


def test_a_batch_that_cannot_be_encoded_is_noticed_while_its_change_is_planned(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoded later, in the turn that proposes it, it would have no client to answer."""
    with monkeypatch.context() as patch:
        identified = change_requests.identified
        patch.setattr(change_requests, "identified", lambda one, request, _: identified(one, request, 2**64))
        found = refused(cluster, create("other"), 2)
    assert found.code == "CHANGE_FAILED"
    goes_on(cluster)


def test_a_committed_batch_that_cannot_be_applied_still_ends_the_step(
    cluster: MasterWithServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.ask(create())
    monkeypatch.setattr(type(cluster.core.catalog), "apply", broken)
    with pytest.raises(OverflowError):
        cluster.commit()


def test_a_refusal_on_record_has_as_much_text_as_an_answer(cluster: MasterWithServers) -> None:
    cluster.create_running()
    step = DropRange(range=KeyRange(b"a" * 1_000_000, b"b"))
    found = refused(cluster, AlterTable(table="readings", steps=(step,)))
    assert found.code == "BAD_CHANGE" and len(found.detail) == TEXT_LENGTH_MAX
