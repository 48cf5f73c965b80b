"""Every planted bug of the masters is caught by the invariant that it breaks, and by no other.

In `make soak` each bug also runs on ``MORE_SEEDS``, as the planted bugs of tablets do."""

from __future__ import annotations

from functools import cache

import pytest

from stelae.sim.masters.invariants import INVARIANTS
from stelae.sim.masters.run import run_seed
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import MASTERS_SEEDS_MAX, first_seeds, seeds_of_masters
from tests.sim.masters.mutants import MUTANTS
from tests.sim.mutants import Mutant
from tests.sim.planting import planted, resolve

MORE_SEEDS = range(10_001, 10_021)


@cache
def _is_clean(seed: int) -> bool:
    """Whether a seed violates no invariant without a planted bug. Several bugs have the same seed."""
    return run_seed(seed).violation is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught_by_its_invariant(mutant: Mutant, capsys: pytest.CaptureFixture[str]) -> None:
    with planted(mutant) as record:
        for seed in seeds_of_masters(mutant):
            violation = run_seed(seed).violation
            if violation is not None:
                break
        more = [run_seed(other).violation for other in MORE_SEEDS] if AT_LENGTH else []
    assert record.calls > 0, f"{mutant.target} is never called"
    assert violation is not None, f"{MASTERS_SEEDS_MAX} seeds from {mutant.seed} do not show it"
    with capsys.disabled():
        print(f"\n{mutant.name}: seed {seed}, {violation.invariant}: {violation.detail[:120]}")
        if more:
            print(f"  {sum(found is not None for found in more)} of {len(more)} other seeds show it")
    assert violation.invariant == mutant.invariant, violation.detail
    assert _is_clean(seed), "the seed fails without the bug, too"


def test_every_invariant_catches_a_planted_bug() -> None:
    """A run that does not come to rest violates liveness, which is judged by the run itself."""
    assert {mutant.invariant for mutant in MUTANTS} == {invariant.name for invariant in INVARIANTS} | {"liveness"}
    assert len(MUTANTS) >= 10


def test_every_mutant_names_a_function_that_exists() -> None:
    for mutant in MUTANTS:
        resolve(mutant.target)
        assert mutant.rule
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert set(first_seeds().masters_mutants) <= {mutant.name for mutant in MUTANTS}
