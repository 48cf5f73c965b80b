"""Tables of a run that cannot all be created: what is left of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stelae.protocol.master_errors import NoTable, TableExists
from stelae.spi.errors import StelaeError, Unavailable
from stelae_chaos.tables import TableNames, TablesLeft, create_tables

NAMES = TableNames.of_run("x")


class Masters:
    """A substitute for the client: its tables, and the errors with which it answers."""

    def __init__(self, *tables: str) -> None:
        self.tables = [*tables]
        self.refused: dict[str, StelaeError] = {}
        self.lost: dict[str, StelaeError] = {}
        self.drop_error: StelaeError | None = None

    async def create_table(self, name: str, **_: Any) -> None:
        if name in self.refused:
            raise self.refused[name]
        if name in self.tables:
            raise TableExists(name)
        self.tables.append(name)
        if name in self.lost:
            raise self.lost[name]

    async def drop_table(self, name: str, **_: Any) -> None:
        if self.drop_error is not None:
            raise self.drop_error
        if name not in self.tables:
            raise NoTable(name, self.tables)
        self.tables.remove(name)


def create(masters: Masters) -> None:
    asyncio.run(create_tables(masters, NAMES, 3))  # type: ignore[arg-type]


def test_all_tables_are_created() -> None:
    masters = Masters("other")
    create(masters)
    assert masters.tables == ["other", *NAMES.all()]


def test_of_a_creation_that_fails_half_way_nothing_is_left() -> None:
    masters = Masters("other")
    masters.refused[NAMES.counters] = Unavailable("too few servers")
    with pytest.raises(Unavailable, match=r"^too few servers$"):
        create(masters)
    assert masters.tables == ["other"]


def test_a_table_whose_answer_was_lost_is_dropped_too() -> None:
    masters = Masters()
    masters.lost[NAMES.appends] = Unavailable("no master answered")
    with pytest.raises(Unavailable, match="no master answered"):
        create(masters)
    assert masters.tables == []


def test_a_table_that_was_there_before_stays() -> None:
    masters = Masters(NAMES.sums)
    with pytest.raises(TableExists):
        create(masters)
    assert masters.tables == [NAMES.sums]


def test_tables_that_cannot_be_dropped_again_are_named() -> None:
    masters = Masters()
    masters.refused[NAMES.appends] = Unavailable("no master answered")
    masters.drop_error = Unavailable("no master answered")
    with pytest.raises(TablesLeft, match="chaos-x-registers, chaos-x-appends; drop them with `stelae table drop`"):
        create(masters)
