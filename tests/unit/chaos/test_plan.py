"""Plans: the same seed gives the same faults, and every kind comes once before any comes again."""

from __future__ import annotations

from itertools import islice

import pytest

from stelae_chaos.command import chaos
from stelae_chaos.fault_kinds import KINDS, UnknownFault, chosen_kinds
from stelae_chaos.plan import CALM_S, FAULT_S, planned_faults


def drawn(seed: int, count: int) -> list[tuple[str, float, float, float]]:
    found = islice(planned_faults(seed, [*KINDS]), count)
    return [(fault.kind, fault.fault_s, fault.calm_s, fault.rng.random()) for fault in found]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert drawn(7, 40) == drawn(7, 40)
    assert drawn(7, 40) != drawn(8, 40)


def test_the_order_of_the_kinds_does_not_matter() -> None:
    first, second = (next(planned_faults(7, kinds)).kind for kinds in ([*KINDS], [*KINDS][::-1]))
    assert first == second


def test_every_kind_comes_once_before_any_comes_again() -> None:
    kinds = [kind for kind, *_ in drawn(7, 3 * len(KINDS))]
    for place in range(0, len(kinds), len(KINDS)):
        assert sorted(kinds[place : place + len(KINDS)]) == sorted(KINDS)


def test_faults_and_calm_phases_are_as_long_as_they_may_be() -> None:
    for _, fault_s, calm_s, _ in drawn(7, 100):
        assert FAULT_S[0] <= fault_s <= FAULT_S[1]
        assert CALM_S[0] <= calm_s <= CALM_S[1]


def test_what_a_fault_draws_does_not_change_the_faults_after_it() -> None:
    first, second = planned_faults(7, [*KINDS]), planned_faults(7, [*KINDS])
    next(first).rng.random()
    next(second)
    assert next(first).rng.random() == next(second).rng.random()


def test_the_kinds_are_chosen_by_name_in_their_own_order() -> None:
    assert chosen_kinds("") == [*KINDS]
    assert chosen_kinds("transfer, kill-one") == ["kill-one", "transfer"]


@pytest.mark.parametrize("text", ["kill-two", "kill-one,slow", ","])
def test_an_unknown_kind_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UnknownFault, match="known: kill-one, kill-long"):
        chosen_kinds(text)


def test_the_help_names_every_kind() -> None:
    (named,) = [part for part in (chaos.__doc__ or "").split("\n\n") if part.strip().startswith("Faults: ")]
    assert [kind for kind in KINDS if kind not in named] == []
