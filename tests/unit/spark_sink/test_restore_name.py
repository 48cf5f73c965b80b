"""How a restored table gets its name, also if the same restore runs twice at the same time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.client import RenameTable
from stelae.client.locations import NoSuchTable
from stelae.protocol.master_errors import NoTable
from stelae.spi.errors import CallerError
from stelae_spark_sink.backup import restore_job
from stelae_spark_sink.backup.restore_job import RestoreOptions

INTERIM = "readings.restoring-b1"


class Masters:
    """Names and ids of tables, as a client sees them. Each change can be preceded by one of another client."""

    def __init__(self, **ids: str) -> None:
        self.ids = {"readings": "id-old", INTERIM: "id-new"} if not ids else dict(ids)
        self.before: dict[str, Callable[[], object]] = {}

    def _name(self, given: str) -> str:
        found = {**{one: name for name, one in self.ids.items()}, **{name: name for name in self.ids}}.get(given)
        if found is None:
            raise NoTable(given, [*self.ids])
        return found

    def _meanwhile(self, what: str) -> None:
        self.before.pop(what, lambda: None)()

    def table(self, given: str, **_: Any) -> Any:
        try:
            name = self._name(given)
        except NoTable:
            raise NoSuchTable(given, [*self.ids]) from None
        return SimpleNamespace(name=name, table_id=self.ids[name])

    def drop_table(self, given: str, *, keep_s: float) -> None:
        self._meanwhile("drop")
        del self.ids[self._name(given)]

    def alter_table(self, given: str, step: RenameTable) -> None:
        self._meanwhile("rename")
        name = self._name(given)
        if step.to in self.ids:
            raise CallerError(f"there is a table {step.to!r}")
        self.ids[step.to] = self.ids.pop(name)


OPTIONS: dict[str, Any] = {
    "masters": "m:1", "table": "readings", "name": "readings", "at": None, "keep_s": 0.0, "replicas": None,
    "timeout_s": 1.0, "progress": False,
}  # fmt: skip


def give_name(masters: Any, *, replace: bool = True) -> str:
    ours: Any = SimpleNamespace(name=INTERIM, table_id="id-new")
    return restore_job._give_name(masters, ours, RestoreOptions(**OPTIONS, replace=replace))


def test_the_old_table_is_dropped_and_the_restored_one_has_its_name() -> None:
    masters = Masters()
    assert give_name(masters) == "id-old" and masters.ids == {"readings": "id-new"}


@pytest.mark.parametrize("when", ["drop", "rename"])
def test_two_runs_of_one_restore_leave_the_restored_table(when: str) -> None:
    """The second run dropped the table that the first one had just restored."""
    masters = Masters()
    masters.before[when] = lambda: give_name(masters)
    give_name(masters)
    assert masters.ids == {"readings": "id-new"}
    assert give_name(masters) == "" and masters.ids == {"readings": "id-new"}, "and so does a third one"


def test_the_old_table_stays_if_the_interim_table_is_gone() -> None:
    masters = Masters(readings="id-old")
    with pytest.raises(NoSuchTable):
        give_name(masters)
    assert masters.ids == {"readings": "id-old"}


def test_a_table_that_got_the_name_meanwhile_is_not_dropped_without_replace() -> None:
    masters = Masters()
    with pytest.raises(CallerError, match="there is a table 'readings'"):
        give_name(masters, replace=False)
    assert masters.ids == {"readings": "id-old", INTERIM: "id-new"}
