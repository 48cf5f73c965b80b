"""The model of a log: which recoveries are legal after a crash."""

from __future__ import annotations

import pytest

from stelae.sim.log_model import LogModel
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Append


def entry(term: int, index: int) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, index, b"%d" % term)


def entries(term: int, first: int, last: int) -> list[Entry]:
    return [entry(term, index) for index in range(first, last + 1)]


@pytest.fixture
def model() -> LogModel:
    """Entries 1.1 to 1.5 are durable; 2.4 to 2.6 are under way over them."""
    model = LogModel()
    model.begin(Append(entries=tuple(entries(1, 1, 5))))
    model.complete()
    model.begin(Append(entries=tuple(entries(2, 4, 6)), replace_from=4, commit_hint=3))
    return model


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_prefix_of_the_append_under_way_is_legal(model: LogModel, done: int) -> None:
    found = entries(1, 1, 3) + entries(2, 4, 3 + done)
    assert model.match_recovered(ZERO, found) is None
    assert model.last() == found[-1].op_id
    assert model.match_recovered(ZERO, found) is None


def test_the_whole_old_suffix_is_legal(model: LogModel) -> None:
    assert model.match_recovered(ZERO, entries(1, 1, 5)) is None


@pytest.mark.parametrize(
    "found",
    [
        entries(1, 1, 4),
        entries(1, 1, 2),
        [],
        entries(1, 1, 3) + entries(2, 4, 4) + entries(1, 5, 5),
        entries(1, 1, 5) + entries(2, 6, 6),
        entries(1, 1, 3) + entries(2, 4, 7),
        [*entries(1, 1, 3), Entry(OpId(2, 4), EntryKind.WRITE, 4, b"other")],
    ],
    ids=["part-of-old", "lost", "empty", "old-behind-new", "new-behind-old", "extra", "altered"],
)
def test_mixed_lost_and_unknown_entries_are_reported(model: LogModel, found: list[Entry]) -> None:
    assert model.match_recovered(ZERO, found) is not None


def test_only_the_collected_entries_may_be_missing(model: LogModel) -> None:
    model.complete()
    assert model.match_recovered(OpId(1, 2), entries(1, 3, 3) + entries(2, 4, 6)) is None
    assert model.match_recovered(OpId(1, 2), entries(2, 4, 6)) is not None
    assert model.match_recovered(OpId(2, 6), []) is None
    assert model.match_recovered(OpId(1, 3), []) is not None


def test_the_model_knows_its_hint_base_and_last(model: LogModel) -> None:
    assert model.hint == 3
    assert model.last() == OpId(1, 5)
    assert (model.op_id_at(0), model.op_id_at(5), model.op_id_at(6)) == (ZERO, OpId(1, 5), None)
