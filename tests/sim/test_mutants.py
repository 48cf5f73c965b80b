"""Every planted bug is caught by the invariant that it breaks, and by no other.

In `make soak` each bug also runs on ``MORE_SEEDS``, and the output says how many of them show it. If few seeds show a
bug, the simulator finds it only by luck."""

from __future__ import annotations

import logging

import pytest

from stelae.sim.invariants import INVARIANTS
from stelae.sim.profile import ProfileKind
from stelae.sim.run import run_seed
from tests.at_length import AT_LENGTH
from tests.sim.client_mutants import CLIENT_MUTANTS
from tests.sim.copy_mutants import COPY_MUTANTS
from tests.sim.first_seeds import first_seeds, seeds_of
from tests.sim.lease_mutants import LEASE_MUTANTS
from tests.sim.local_mutants import LOCAL_MUTANTS
from tests.sim.lookup_mutants import LOOKUP_MUTANTS
from tests.sim.member_mutants import MEMBER_MUTANTS
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.planting import planted, resolve

ALL = (*MUTANTS, *CLIENT_MUTANTS, *MEMBER_MUTANTS, *LEASE_MUTANTS, *COPY_MUTANTS, *LOCAL_MUTANTS, *LOOKUP_MUTANTS)
MORE_SEEDS = range(10_001, 10_021)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught_by_its_invariant(
    mutant: Mutant, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.CRITICAL)
    with planted(mutant) as record:
        for seed in seeds_of(mutant):
            violation = run_seed(seed, kind=mutant.kind).violation
            if violation is not None:
                break
        more = [run_seed(other, kind=mutant.kind).violation for other in MORE_SEEDS] if AT_LENGTH else []
    assert record.calls > 0, f"{mutant.target} is never called"
    assert violation is not None, f"{mutant.seeds_max} seeds from {mutant.seed} do not show it"
    with capsys.disabled():
        print(f"\n{mutant.name}: seed {seed}, {violation.invariant}: {violation.detail[:120]}")
        if more:
            print(f"  {sum(found is not None for found in more)} of {len(more)} other seeds show it")
    assert violation.invariant == mutant.invariant, violation.detail


def test_the_mutants_cover_executor_log_writer_stores_members_and_the_rules_whose_breach_loses_data() -> None:
    drivers = ("stelae.host.executor", "stelae.host.log_writer")
    stores = ("stelae.host.flush_and_collect", "stelae_store_columnar")
    assert len(MUTANTS) >= 20
    assert sum(mutant.target.startswith(drivers) for mutant in MUTANTS) >= 4
    assert sum(mutant.target.startswith(stores) for mutant in MUTANTS) >= 8
    assert sum(mutant.kind is ProfileKind.MEMBERSHIP for mutant in MEMBER_MUTANTS) >= 26
    assert sum(mutant.target.startswith("stelae.client") for mutant in CLIENT_MUTANTS) >= 6
    assert sum(mutant.target.startswith("stelae.server.tserver.scan_time") for mutant in CLIENT_MUTANTS) >= 4
    broken = [mutant.rule.replace(",", " ") for mutant in MUTANTS]
    rules = {number for text in broken if "durability" in text for number in text.split()}
    assert {"1", "3", "4", "5", "6", "9", "11", "14", "16", "24", "32"} <= rules


def test_every_mutant_names_an_invariant_and_a_function_that_exist() -> None:
    known = {"liveness", "healthy_replicas"} | {invariant.name for invariant in INVARIANTS}
    for mutant in ALL:
        assert mutant.invariant in known
        resolve(mutant.target)
    assert len({mutant.name for mutant in ALL}) == len(ALL)
    assert set(first_seeds().mutants) <= {mutant.name for mutant in ALL}
