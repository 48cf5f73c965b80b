"""The suite bites: each bug that is planted in the policy is caught by the check that is named beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import Phase, settings

from stelae.spi.ids import OpId
from stelae.spi.members import VOTING, MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth, PolicySnapshot
from stelae.testing.conformance import policy_strategies
from stelae.testing.conformance.policy import PolicyConformance, PolicyHarness
from stelae.testing.conformance.policy_model import has_majority
from stelae_placement_policy import PlacementPolicy, moves, surplus
from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.member_states import MemberStates, place_of
from stelae_placement_policy.moves import Moves
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedTablet
from stelae_placement_policy.repair import Repair
from stelae_placement_policy.topology import Topology

Check = Callable[[PolicyConformance, PolicyHarness], None]
Plan = tuple[Action, ...]

# -- bugs of a plan as a whole ------------------------------------------------------------------------


class RemembersWhatItPlanned(PlacementPolicy):
    done: ClassVar[set[Any]] = set()

    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        fresh = tuple(action for action in plan if action not in cls.done)
        cls.done.update(plan)
        return fresh


class DrawsWhatDiffersBetweenVersions(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = list(super().plan(snapshot, config, rng))
        rng.shuffle(plan)
        return tuple(plan)


class DrawsFromARarerDistribution(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        rng.triangular(0, 1)
        return super().plan(snapshot, config, rng)


class GoesByHashes(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        return tuple(sorted(super().plan(snapshot, config, rng), key=lambda action: hash(action.node_id)))


class LooksAtAClock(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        monotonic()
        return super().plan(snapshot, config, rng)


class LooksAtTheDate(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        datetime.now(UTC)
        return super().plan(snapshot, config, rng)


class PlansOnAThreadOfItsOwn(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(super().plan, snapshot, config, rng).result()


class ReadsAFile(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        Path(__file__).read_bytes()
        return super().plan(snapshot, config, rng)


class ComparesEachTwoTablets(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        for one in snapshot.tablets:
            for other in snapshot.tablets:
                assert one == other or one != other
        return super().plan(snapshot, config, rng)


class PromotesBeforeTheCopyHasEnded(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        changed = {action.tablet_id for action in plan}
        return *plan, *(
            Action(
                kind=ActionKind.CHANGE_ROLE,
                tablet_id=tablet.tablet_id,
                node_id=replica.node_id,
                cas=tablet.config_op_id,
                reason="it has 1 copy",
                member_type=MemberType.VOTER,
            )
            for tablet in snapshot.tablets.values()
            for replica in tablet.replicas
            if replica.member_type is MemberType.PRE_VOTER
            and tablet.tablet_id not in changed
            and not tablet.change_pending
            and has_majority(tablet)
        )


class GoesByTheOrderOfTheSnapshot(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        order = list(snapshot.tablets)
        return tuple(sorted(super().plan(snapshot, config, rng), key=lambda action: order.index(action.tablet_id)))


class NeedsANode(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        max(node.free_bytes for node in snapshot.nodes.values())
        return super().plan(snapshot, config, rng)


class NeedsBarredNodesToBeThere(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        assert all(node in snapshot.nodes for tablet in snapshot.tablets.values() for node in tablet.barred)
        return super().plan(snapshot, config, rng)


class ForgetsTheFence(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        return tuple(msgspec.structs.replace(action, cas=OpId(1, 1)) for action in plan)


class InventsAKind(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        return tuple(msgspec.structs.replace(action, kind="SPLIT") for action in plan)


class GivesNoFigures(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        return tuple(msgspec.structs.replace(action, reason="for balance") for action in plan)


class LetsNewMembersVoteAtOnce(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        plan = super().plan(snapshot, config, rng)
        return tuple(
            msgspec.structs.replace(action, member_type=MemberType.VOTER) if action.kind is ActionKind.ADD else action
            for action in plan
        )


class PlacesOneReplicaOfThree(PlacementPolicy):
    @classmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> Plan:
        seen: set[str] = set()
        kept = []
        for action in super().plan(snapshot, config, rng):
            if action.kind is not ActionKind.PLACE or action.tablet_id not in seen:
                kept.append(action)
            seen.add(action.tablet_id)
        return tuple(kept)


C = PolicyConformance


@pytest.fixture(autouse=True)
def one_failing_example_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_strategies, "EXAMPLES", settings(policy_strategies.EXAMPLES, phases=[Phase.generate]))
    RemembersWhatItPlanned.done.clear()


POLICIES: list[tuple[type[PlacementPolicy], Check]] = [
    (RemembersWhatItPlanned, C.test_earlier_plans_have_no_effect_on_a_plan),
    (DrawsWhatDiffersBetweenVersions, C.test_a_new_tablet_gets_all_its_voters_at_once),
    (DrawsFromARarerDistribution, C.test_a_new_tablet_gets_all_its_voters_at_once),
    (GoesByHashes, C.test_a_plan_does_not_depend_on_the_hashes_of_strings),
    (LooksAtAClock, C.test_a_plan_reads_no_clock_and_opens_and_starts_nothing),
    (LooksAtTheDate, C.test_a_plan_reads_no_clock_and_opens_and_starts_nothing),
    (PlansOnAThreadOfItsOwn, C.test_a_plan_reads_no_clock_and_opens_and_starts_nothing),
    (ReadsAFile, C.test_a_plan_reads_no_clock_and_opens_and_starts_nothing),
    (ComparesEachTwoTablets, C.test_the_time_of_a_plan_grows_about_as_the_number_of_tablets),
    (PromotesBeforeTheCopyHasEnded, C.test_no_action_could_cost_a_tablet_its_majority_or_its_data),
    (NeedsBarredNodesToBeThere, C.test_there_is_a_plan_for_every_snapshot),
    (GoesByTheOrderOfTheSnapshot, C.test_equal_snapshots_and_random_sources_give_equal_plans),
    (ForgetsTheFence, C.test_actions_have_a_known_kind_a_fence_and_a_reason),
    (InventsAKind, C.test_actions_have_a_known_kind_a_fence_and_a_reason),
    (GivesNoFigures, C.test_actions_have_a_known_kind_a_fence_and_a_reason),
    (LetsNewMembersVoteAtOnce, C.test_no_action_could_cost_a_tablet_its_majority_or_its_data),
    (PlacesOneReplicaOfThree, C.test_a_new_tablet_gets_all_its_voters_at_once),
]
"""A policy with a bug, and the check that must fail."""


@pytest.mark.parametrize(("policy", "check"), POLICIES, ids=[f"{p.__name__}-{c.__name__}" for p, c in POLICIES])
def test_the_suite_catches_a_bug_of_the_plan(policy: type[PlacementPolicy], check: Check) -> None:
    with pytest.raises(AssertionError):
        check(PolicyConformance(), PolicyHarness(policy))


def test_the_suite_catches_a_policy_without_a_plan_for_an_empty_cluster() -> None:
    with pytest.raises(ValueError, match="empty"):
        C.test_there_is_a_plan_for_every_snapshot(PolicyConformance(), PolicyHarness(NeedsANode))


# -- bugs in the parts of it --------------------------------------------------------------------------


def takes_dead_nodes_too(self: Topology, locations: Any, open_nodes: Any, weights: Any) -> None:
    inner_init(self, locations, range(len(locations)), [weight or 1.0 for weight in weights])


def maintenance_is_death(self: MemberStates, survey: Any, tablet: Any) -> None:
    inner_standing(self, survey, tablet)
    away = [node for node in self.steady if survey.health(node) is NodeHealth.MAINTENANCE]
    self.lost += away
    self.steady = [node for node in self.steady if node not in away]


def sees_dead_voters_as_steady(self: MemberStates, survey: Any, tablet: Any) -> None:
    inner_standing(self, survey, tablet)
    self.steady, self.lost = self.steady + self.lost, []


def retiring_is_fine(self: MemberStates, survey: Any, tablet: Any) -> None:
    inner_standing(self, survey, tablet)
    self.steady, self.leaving = self.steady + self.leaving, []


def counts_copies_that_never_end(self: MemberStates, survey: Any, tablet: Any) -> None:
    inner_standing(self, survey, tablet)
    self.arriving, self.failed_copies = self.arriving + self.failed_copies, []


def evicts_before_it_adds(self: Repair, standing: MemberStates) -> Action | None:
    found = None
    if standing.lost:
        found = self._action(ActionKind.REMOVE, standing, standing.lost[0], "1 is dead")
    return found or inner_decide(self, standing)


def keeps_every_spare(survey: Any, ledger: Any, members: Any, size: int, new: int) -> bool:
    return True


def never_keeps_a_copy(survey: Any, ledger: Any, members: Any, size: int, new: int) -> bool:
    return False


def ignores_members(self: Picker, node: int, size: int, barred: Any, copied: bool, cool: bool) -> bool:
    return inner_fits(self, node, size, (), copied, cool)


def ignores_disks(self: Picker, node: int, size: int, barred: Any, copied: bool, cool: bool) -> bool:
    return node not in barred


def relieves_the_emptiest(self: Ledger, node: int, size: int) -> float:
    return -inner_relief(self, node, size)


def evicts_the_newest(topology: Any, ledger: Any, tablet: Any, members: Any, among: Any) -> int:
    return max(among, key=list(members).index)


def bars_no_node(self: NumberedTablet, view: Any, members: Any, size: int, leader: int, *marks: Any) -> None:
    inner_tablet(self, view, members, size, leader, [], marks[1])


def avoids_no_node(self: NumberedTablet, view: Any, members: Any, size: int, leader: int, *marks: Any) -> None:
    inner_tablet(self, view, members, size, leader, marks[0], [])


def bars_what_it_should_avoid(self: NumberedTablet, view: Any, members: Any, size: int, leader: int, *m: Any) -> None:
    inner_tablet(self, view, members, size, leader, [*m[0], *m[1]], [])


def waits_for_no_copy(self: MemberStates, replica: Any, number: int, health: Any) -> None:
    inner_take(self, msgspec.structs.replace(replica, copying=False), number, health)


def waits_for_copies_that_stall(self: MemberStates, replica: Any, number: int, health: Any) -> None:
    inner_take(self, msgspec.structs.replace(replica, copying=not replica.healthy), number, health)


def ignores_what_operators_added(self: MemberStates, replica: Any, number: int, health: Any) -> None:
    inner_take(self, msgspec.structs.replace(replica, pinned=False), number, health)


def keeps_pinned_members_and_lost_ones(self: Repair, states: MemberStates) -> list[list[int]]:
    return [] if states.pinned else inner_evictable(self, states)


def sees_no_move(self: MemberStates, replica: Any, number: int, health: Any) -> None:
    self.replaced = {}
    inner_take(self, msgspec.structs.replace(replica, replaces=None), number, health)


def replaces_before_the_other_one_votes(cluster: Any, tablet: Any) -> dict[int, int]:
    pairs = zip(tablet.view.replicas, tablet.members, strict=True)
    places = ((place_of(tablet, replica), number) for replica, number in pairs)
    return {place: number for place, number in places if place >= 0}


def replaces_though_the_other_one_is_silent(cluster: Any, tablet: Any) -> dict[int, int]:
    found = replaces_before_the_other_one_votes(cluster, tablet)
    votes = {n for r, n in zip(tablet.view.replicas, tablet.members, strict=True) if r.member_type in VOTING}
    return {place: number for place, number in found.items() if number in votes}


def evicts_the_rows(self: Repair, states: MemberStates) -> list[list[int]]:
    with_rows = [node for node in states.steady if node not in states.witnesses]
    return [with_rows] if states.witnesses else inner_evictable(self, states)


inner_init, inner_standing, inner_decide = Topology.__init__, MemberStates.__init__, Repair._decide
inner_fits, inner_relief = Picker.fits, Ledger.relief
inner_tablet, inner_take, inner_evictable = NumberedTablet.__init__, MemberStates._take, Repair._evictable

PARTS: list[tuple[Any, str, Any, Check]] = [
    (Topology, "__init__", takes_dead_nodes_too, C.test_no_action_could_cost_a_tablet_its_majority_or_its_data),
    (MemberStates, "__init__", maintenance_is_death, C.test_a_server_in_maintenance_is_not_replaced),
    (
        MemberStates,
        "__init__",
        sees_dead_voters_as_steady,
        C.test_a_dead_servers_replica_is_added_promoted_and_then_evicted,
    ),
    (
        MemberStates,
        "__init__",
        retiring_is_fine,
        C.test_a_retiring_server_is_emptied_and_serves_until_its_replicas_are_replaced,
    ),
    (
        MemberStates,
        "__init__",
        counts_copies_that_never_end,
        C.test_a_replacement_that_dies_during_its_copy_is_replaced,
    ),
    (MemberStates, "can_change", lambda self: True, C.test_a_tablet_with_a_pending_change_is_left_alone),
    (MemberStates, "can_change", lambda self: True, C.test_while_a_majority_is_down_no_replica_is_evicted_or_added),
    (
        MemberStates,
        "may_evict",
        lambda self, voter: True,
        C.test_no_action_could_cost_a_tablet_its_majority_or_its_data,
    ),
    (Repair, "_decide", evicts_before_it_adds, C.test_a_dead_servers_replica_is_added_promoted_and_then_evicted),
    (Repair, "_evict", lambda self, standing: None, C.test_a_lowered_replication_factor_removes_voters_one_by_one),
    (
        "stelae_placement_policy.repair",
        "keeps_copy",
        keeps_every_spare,
        C.test_a_replacement_is_removed_if_the_dead_server_returns_before_its_promotion,
    ),
    (
        "stelae_placement_policy.repair",
        "keeps_copy",
        never_keeps_a_copy,
        C.test_plans_converge_and_add_no_replica_twice,
    ),
    (
        "stelae_placement_policy.repair",
        "member_to_remove",
        evicts_the_newest,
        C.test_an_empty_server_gets_its_share_of_replicas,
    ),
    (NumberedTablet, "__init__", bars_no_node, C.test_a_barred_node_gets_no_replica_even_if_no_other_can),
    (NumberedTablet, "__init__", bars_no_node, C.test_no_action_could_cost_a_tablet_its_majority_or_its_data),
    (
        NumberedTablet,
        "__init__",
        avoids_no_node,
        C.test_a_node_where_a_copy_has_just_failed_gets_the_next_one_only_if_no_other_can,
    ),
    (
        NumberedTablet,
        "__init__",
        bars_what_it_should_avoid,
        C.test_a_node_where_a_copy_has_just_failed_gets_the_next_one_only_if_no_other_can,
    ),
    (MemberStates, "_take", waits_for_no_copy, C.test_a_replica_that_is_being_copied_is_not_replaced_until_it_stalls),
    (
        MemberStates,
        "_take",
        waits_for_copies_that_stall,
        C.test_a_replica_that_is_being_copied_is_not_replaced_until_it_stalls,
    ),
    (
        MemberStates,
        "_take",
        ignores_what_operators_added,
        C.test_a_member_that_an_operator_added_is_kept_besides_the_wanted_number,
    ),
    (
        Repair,
        "_evictable",
        keeps_pinned_members_and_lost_ones,
        C.test_a_member_that_an_operator_added_takes_the_place_of_one_that_is_lost,
    ),
    (
        MemberStates,
        "_take",
        sees_no_move,
        C.test_a_member_that_is_replaced_stays_until_the_other_one_votes_and_then_goes,
    ),
    (
        "stelae_placement_policy.member_states",
        "taken_places",
        replaces_before_the_other_one_votes,
        C.test_a_member_that_is_replaced_stays_until_the_other_one_votes_and_then_goes,
    ),
    (
        "stelae_placement_policy.member_states",
        "taken_places",
        replaces_though_the_other_one_is_silent,
        C.test_a_member_that_is_replaced_stays_until_the_other_one_votes_and_then_goes,
    ),
    (Repair, "_evictable", evicts_the_rows, C.test_voters_with_rows_stay_while_a_witness_lacks_them),
    (Picker, "fits", ignores_members, C.test_no_action_could_cost_a_tablet_its_majority_or_its_data),
    (Picker, "fits", ignores_disks, C.test_a_full_disk_gets_no_replica),
    (Ledger, "relief", relieves_the_emptiest, C.test_an_empty_server_gets_its_share_of_replicas),
    (Topology, "counts", lambda self, members: {}, C.test_new_replicas_go_to_as_many_locations_as_possible),
    (Moves, "_move_apart", lambda self: None, C.test_replicas_that_share_a_location_are_moved_apart),
    (Moves, "_balance", lambda self: None, C.test_an_empty_server_gets_its_share_of_replicas),
    ("stelae_placement_policy.leaders", "Leaders._better", lambda *_: -1, C.test_leaders_are_spread_by_transfer),
]
"""Where, what, its replacement, and the check that must fail."""


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"), PARTS, ids=[f"{getattr(b, '__name__', n)}-{c.__name__}" for _, n, b, c in PARTS]
)
def test_the_suite_catches_a_bug_in_a_part(
    owner: Any, name: str, bug: Any, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", bug)
    else:
        monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        check(PolicyConformance(), PolicyHarness(PlacementPolicy))


def test_moves_that_later_plans_would_undo_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the trial of a plan's moves, one that the next plan gives up is begun again and again."""
    monkeypatch.setattr(moves, "keeps_copy", keeps_every_spare)
    monkeypatch.setattr(surplus, "KEEP_RATIO", 1000.0)
    with pytest.raises(AssertionError):
        C.test_plans_converge_and_add_no_replica_twice(PolicyConformance(), PolicyHarness(PlacementPolicy))
