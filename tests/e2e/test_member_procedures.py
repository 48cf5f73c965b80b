"""A kill within each procedure that changes members, on real processes; ``tests/soak`` has every step and victim."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.soak.kill_steps import Row
from tests.soak.member_procedures import carry_out


def test_a_dead_server_is_replaced_although_the_target_of_the_copy_is_killed_within_it(tmp_path: Path) -> None:
    asyncio.run(carry_out(tmp_path, [("replace", Row("copy.after_chunk", "target"))]))


@pytest.mark.long
def test_a_move_and_a_retirement_end_as_ordered_although_a_node_is_killed(tmp_path: Path) -> None:
    chosen = [("move", Row("copy.after_rows", "source")), ("retire", Row("master.after.REMOVE", "master"))]
    asyncio.run(carry_out(tmp_path, chosen))


@pytest.mark.long
def test_a_rebalance_goes_on_under_the_next_leading_master(tmp_path: Path) -> None:
    asyncio.run(carry_out(tmp_path, [("rebalance", Row("master.after.ADD", "master"))], tablets=2))


def test_a_target_that_is_killed_again_while_it_abandons_a_copy_ends_as_a_member(tmp_path: Path) -> None:
    asyncio.run(carry_out(tmp_path, [("later copy", Row("abandon.after_tombstone", "target"))]))
