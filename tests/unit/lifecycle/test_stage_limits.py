"""Which stages are removed, and when (rule 21: age, size, and first of all if space is short)."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import CopyStage
from stelae.lifecycle.stage_limits import StoredStage, list_stages, stages_to_remove
from stelae.spi.ids import TabletId
from tests.unit.lifecycle.disk_node import LAYOUT
from tests.unit.lifecycle.test_copy_stage import TABLET, disk, snapshot

SETTINGS = StageSettings(age_s_max=100, free_bytes_min=1000)
NOW_US = 1_000_000_000


def stage(name: str, age_s: int | None, size_bytes: int = 10) -> StoredStage:
    used_us = None if age_s is None else NOW_US - age_s * 1_000_000
    return StoredStage(tablet_id=TabletId(name), used_us=used_us, size_bytes=size_bytes)


def removed(*found: StoredStage, **changed: Any) -> list[str]:
    arguments: dict[str, Any] = {"in_use": (), "sound": (), "now_us": NOW_US, "free_bytes": 1000, **changed}
    return [str(name) for name in stages_to_remove(found, SETTINGS, **arguments)]


def test_a_stage_that_may_be_used_again_stays() -> None:
    assert removed(stage("a", 100), stage("b", 0)) == []


@pytest.mark.parametrize("age_s", [101, None])
def test_a_stage_that_is_too_old_or_not_intact_is_removed(age_s: int | None) -> None:
    assert removed(stage("a", age_s), stage("b", 0)) == ["a"]


def test_a_stage_of_a_tablet_that_has_a_sound_replica_is_removed() -> None:
    assert removed(stage("a", 0), stage("b", 0), sound=("b",)) == ["b"]


def test_a_stage_that_a_copy_uses_stays_whatever_else_holds() -> None:
    assert removed(stage("a", 1000), stage("b", None), in_use=("a", "b"), sound=("a",), free_bytes=0) == []


def test_if_space_is_short_the_oldest_go_until_there_is_enough() -> None:
    stages = [stage("a", 90, 300), stage("b", 80, 300), stage("c", 70, 300)]
    assert removed(*stages, free_bytes=500) == ["a", "b"]
    assert removed(*stages, free_bytes=1000) == []


def test_stages_are_listed_with_the_one_that_was_used_longest_ago_first() -> None:
    place = disk()
    for name, used_us in (("t", 7), ("u", 5)):
        tablet = TabletId(name)
        if tablet == TABLET:
            CopyStage(place, LAYOUT, tablet, 1 << 30).prepare(snapshot(), used_us)
    place.make_directory(f"{LAYOUT.copying}/spoiled")
    place.replace(f"{LAYOUT.copying}/spoiled/manifest", b"x" * 50)
    place.make_directory(f"{LAYOUT.copying}/..odd..")
    found = list_stages(place, LAYOUT)
    assert [(one.tablet_id, one.used_us) for one in found] == [("spoiled", None), ("t", 7)]
    assert found[0].size_bytes == 50 and found[1].size_bytes > 100
