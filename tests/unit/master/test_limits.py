"""Masters and ``[limits]``: schemas are looked at when they are made, and never again."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from stelae.host.settings import ChosenEngine, NodeConfig, NodeSettings, TabletSettings
from stelae.protocol.master_messages import AddColumn, AlterTable, DropColumn, RenameColumn, SetDefault
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.limits import check_tablet
from stelae.server.master.core.events import Refuse, Reply
from stelae.spi.errors import ConfigError
from stelae.spi.ids import ClusterId, TabletId
from stelae.spi.schema import Column, Schema
from tests.unit.master.master_with_servers import SCHEMA, MasterWithServers, bring_along, create

TWO = LimitSettings(columns_max=2)
"""Of what the table of these tests has."""


def led(limits: LimitSettings) -> MasterWithServers:
    """A leader that hears three servers."""
    cluster = MasterWithServers(limits=limits)
    cluster.lead(1)
    cluster.hear()
    return cluster


def asked(cluster: MasterWithServers, change: Any, sequence: int) -> Refuse | Reply:
    """How a change is answered, once it is committed."""
    cluster.ask(change, sequence)
    found = [effect for effect in cluster.commit() if isinstance(effect, Refuse | Reply)]
    return found[0]


def alter(cluster: MasterWithServers, *steps: Any, sequence: int) -> Refuse | Reply:
    return asked(cluster, AlterTable(table="readings", steps=steps), sequence)


def wider(count: int) -> Schema:
    more = (Column(id=n, name=f"c{n}", type="int64", nullable=True) for n in range(3, 3 + count))
    return Schema(1, (*SCHEMA.columns, *more), SCHEMA.key)


def test_a_table_wider_than_the_masters_are_set_to_is_refused_with_both_numbers() -> None:
    found = asked(led(TWO), msgspec.structs.replace(create(), schema=wider(1).to_bytes()), 1)
    assert isinstance(found, Refuse) and found.code == "BAD_CHANGE"
    assert "3 columns; at most 2 are accepted (columns_max in [limits])" in found.detail
    wide = msgspec.structs.replace(create(), schema=wider(DEFAULTS.columns_max).to_bytes())
    assert isinstance(asked(led(DEFAULTS), wide, 1), Refuse)
    assert isinstance(asked(led(LimitSettings(columns_max=302)), wide, 1), Reply)


def test_a_column_too_many_is_refused_and_others_may_be_changed_or_take_its_place() -> None:
    cluster = led(TWO)
    cluster.create_running(create())
    add = AddColumn(name="w", type="int64", nullable=True)
    found = alter(cluster, add, sequence=20)
    assert isinstance(found, Refuse) and "3 columns; at most 2 are accepted" in found.detail
    assert isinstance(alter(cluster, RenameColumn(name="v", to="u"), sequence=21), Reply)
    bring_along(cluster, 2)
    assert isinstance(alter(cluster, DropColumn(name="u"), add, sequence=22), Reply)


def test_a_default_that_no_row_could_have_is_refused() -> None:
    cluster = led(DEFAULTS)
    cluster.create_running(create())
    for sequence, step in enumerate(
        (
            AddColumn(name="w", type="int8", nullable=False, default=300),
            AddColumn(name="w", type="timestamp", nullable=False, default=1 << 62),
            AddColumn(name="w", type="string", nullable=False, default="x" * 70_000),
            SetDefault(name="v", default=1 << 63),
        ),
        20,
    ):
        found = alter(cluster, step, sequence=sequence)
        assert isinstance(found, Refuse) and found.code == "SCHEMA_MISMATCH", step
    one = Column(id=9, name="w", type="date", default=1 << 30)
    bad = Schema(1, (*SCHEMA.columns, one), SCHEMA.key).to_bytes()
    assert isinstance(asked(cluster, msgspec.structs.replace(create("other"), schema=bad), 30), Refuse)


def test_a_tablet_in_a_file_is_held_to_the_limit_of_that_file() -> None:
    engine = ChosenEngine(name="x", engine=object, config=None)
    config = NodeConfig(
        node=NodeSettings(directory="/d", listen="127.0.0.1:0"),
        cluster_id=ClusterId("c"),
        tablet=TabletSettings(id=TabletId("t"), schema=SCHEMA, members=()),
        wal=engine,
        consensus=engine,
        store=engine,
        extra={"limits": LimitSettings(columns_max=1)},
    )
    with pytest.raises(ConfigError, match=r"node.toml: \[tablet\]: the schema has 2 columns; at most 1 are accepted"):
        check_tablet(config, "node.toml")
    check_tablet(dataclasses.replace(config, extra={}), "node.toml")
