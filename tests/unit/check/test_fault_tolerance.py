"""Which faults a config survives, in numbers and in words."""

from __future__ import annotations

import pytest

from stelae.check.fault_tolerance import losses_survived, losses_text, tolerance_text
from stelae.spi.members import MemberType

V, W, N, P = MemberType.VOTER, MemberType.WITNESS, MemberType.NON_VOTER, MemberType.PRE_VOTER


@pytest.mark.parametrize(
    ("voters", "down", "witnesses", "more"),
    [
        *[(1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 1), (3, 1, 0, 0), (3, 2, 0, -1), (4, 0, 0, 1), (5, 0, 0, 2)],
        *[(5, 2, 0, 0), (3, 0, 1, 1), (3, 0, 2, 0), (5, 0, 3, 1), (5, 0, 4, 0), (3, 1, 2, -1)],
    ],
)
def test_the_losses_that_are_left(voters: int, down: int, witnesses: int, more: int) -> None:
    """Those that do not run have the rows here, if any voter has."""
    assert losses_survived(voters, down=down, with_rows=voters - witnesses - down) == more


@pytest.mark.parametrize(
    ("types", "down", "text"),
    [
        ([V, V, V], 0, "survives the loss of any 1 voter (2 of 3 voters must run)"),
        ([V, V, V, N, P], 0, "survives the loss of any 1 voter (2 of 3 voters must run)"),
        (
            [V, V, W],
            0,
            "survives the loss of any 1 voter (2 of 3 voters must run; 1 witness among them has the log only)",
        ),
        ([V, W, W], 0, "survives the loss of no VOTER: 1 of 3 voters has the rows"),
        (
            [V, V, W, W, W],
            0,
            "survives the loss of any 1 voter (3 of 5 voters must run; 3 witnesses among them have the log only)",
        ),
        ([V, V, W, W, W], 1, "survives the loss of no VOTER: 2 of 5 voters have the rows"),
        ([V, V, W], 1, "survives the loss of no voter: the 2 of 3 voters that run are all needed"),
        ([V] * 5, 0, "survives the loss of any 2 voters (3 of 5 voters must run)"),
        ([V], 0, "survives the loss of no voter: there is only one"),
        ([V, V], 0, "survives the loss of no voter: all 2 must run; an odd number of voters is better"),
        ([V, V, V], 1, "survives the loss of no voter: the 2 of 3 voters that run are all needed"),
        ([V, V, V], 2, "no majority: 2 of 3 voters must run, but 2 are down"),
        ([N], 0, "no majority: there is no voter"),
    ],
)
def test_the_words(types: list[MemberType], down: int, text: str) -> None:
    assert tolerance_text(types, down) == text


def test_a_table_survives_what_its_weakest_tablet_survives() -> None:
    assert losses_text([1, 2]) == "1 loss"
    assert losses_text([2]) == "2 losses"
    assert losses_text([2, 0]) == "no loss"
    assert losses_text([-1, 2]) == losses_text([]) == "-"
