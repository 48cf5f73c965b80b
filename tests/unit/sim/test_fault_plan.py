"""Profiles and plans are functions of the seed, and faults can be left out of a plan."""

from __future__ import annotations

from stelae.sim.fault_plan import LEADER, PERMANENT, FaultKind, draw_plan, select_faults
from stelae.sim.profile import ProfileKind, draw_profile
from tests.sim.floors import OF_MEMBERS


def test_the_same_seed_draws_the_same_profile_and_plan() -> None:
    for seed in range(20):
        profile = draw_profile(seed)
        assert profile == draw_profile(seed)
        assert draw_plan(seed, profile) == draw_plan(seed, profile)


def test_a_hundred_seeds_plan_every_kind_of_fault() -> None:
    kinds = {f.kind for seed in range(100) for f in draw_plan(seed, draw_profile(seed))}
    assert kinds == set(FaultKind) - set(OF_MEMBERS)


def test_a_process_is_killed_at_a_disk_operation_about_as_often_as_power_is_lost_at_one() -> None:
    kinds = [f.kind for seed in range(100) for f in draw_plan(seed, draw_profile(seed))]
    killed, lost = kinds.count(FaultKind.KILL_IN_COMMIT), kinds.count(FaultKind.CRASH_IN_COMMIT)
    assert 0.6 < killed / lost < 1.7


def test_a_voter_loses_the_files_of_its_replica_only_where_members_change() -> None:
    """No leader creates replicas in other runs, so the fault would be that of a disk that is damaged."""
    plans = [draw_plan(seed, draw_profile(seed, ProfileKind.MEMBERSHIP)) for seed in range(100)]
    permanent = [sum(fault.kind in PERMANENT for fault in plan) for plan in plans]
    assert any(fault.kind is FaultKind.LOST_REPLICA for plan in plans for fault in plan) and max(permanent) == 1


def test_a_leader_is_left_alone_with_a_witness_only_where_there_are_witnesses() -> None:
    profiles = {seed: draw_profile(seed, ProfileKind.MEMBERSHIP) for seed in range(60)}
    plans = {seed: draw_plan(seed, profile) for seed, profile in profiles.items()}
    alone = {seed: [f for f in plan if f.kind is FaultKind.ALONE_WITH_WITNESS] for seed, plan in plans.items()}
    assert {seed for seed, found in alone.items() if found} <= {seed for seed, p in profiles.items() if p.witnesses}
    assert sum(map(len, alone.values())) > 50
    assert all(fault.victim == LEADER for found in alone.values() for fault in found)


def test_a_leader_is_lost_while_a_voter_is_copied_only_where_replicas_are_copied() -> None:
    for kind in ProfileKind:
        plans = [draw_plan(seed, draw_profile(seed, kind)) for seed in range(20)]
        drawn = sum(fault.kind is FaultKind.LEADER_IN_COPY for plan in plans for fault in plan)
        assert drawn > 20 if kind is ProfileKind.COPIES else drawn == 0


def test_rows_are_damaged_once_at_most_and_never_where_a_replica_is_lost_for_good() -> None:
    for kind in ProfileKind:
        plans = [[fault.kind for fault in draw_plan(seed, draw_profile(seed, kind))] for seed in range(40)]
        damaged = [plan for plan in plans if FaultKind.ROWS_DAMAGED in plan]
        assert len(damaged) > 10 if kind is ProfileKind.COPIES else damaged == []
        assert all(plan.count(FaultKind.ROWS_DAMAGED) == 1 and not {*plan} & {*PERMANENT} for plan in damaged)


def test_a_stage_is_damaged_once_at_most_and_only_where_replicas_are_copied() -> None:
    for kind in ProfileKind:
        plans = [[fault.kind for fault in draw_plan(seed, draw_profile(seed, kind))] for seed in range(40)]
        damaged = [plan.count(FaultKind.STAGE_DAMAGED) for plan in plans if FaultKind.STAGE_DAMAGED in plan]
        assert 5 < len(damaged) < 20 if kind is ProfileKind.COPIES else damaged == []
        assert all(count == 1 for count in damaged)


def test_faults_lie_within_the_safety_phase_in_order_of_time() -> None:
    for seed in range(50):
        profile = draw_profile(seed)
        plan = draw_plan(seed, profile)
        times = [fault.at_us for fault in plan]
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] <= profile.safety_us
        assert [fault.number for fault in plan] == list(range(profile.faults))
        assert sum(fault.kind is FaultKind.SYNC_FAILED for fault in plan) <= 1


def test_a_plan_can_be_reduced_to_the_faults_with_given_numbers() -> None:
    plan = draw_plan(7, draw_profile(7))
    assert select_faults(plan, None) == plan
    assert [fault.number for fault in select_faults(plan, frozenset({0, 2, 999}))] == [0, 2]
    assert select_faults(plan, frozenset()) == ()
