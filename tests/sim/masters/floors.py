"""Floors of the masters' simulator: what must happen at least once over some seeds."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.protocol.actions import ServerAction
from stelae.protocol.fences import FenceVerdict
from stelae.protocol.master_messages import Change
from stelae.server.master.core.operations import BatchOutcome
from stelae.sim.masters.faults import MastersFaultKind
from stelae.sim.masters.run import MastersRunResult, run_seed
from stelae.sim.masters.steps import OF_CATALOG, OF_MEMBERS
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import first_seeds, in_order

SEEDS = range(1, 65)

FAULTS = {f"fault.{kind}" for kind in MastersFaultKind}

STRIKES = {
    f"struck.{step}.{kind}"
    for step in OF_CATALOG
    for kind in (MastersFaultKind.STRIKE_CRASH, MastersFaultKind.STRIKE_PAUSE, MastersFaultKind.STRIKE_PARTITION)
} | {f"struck.{step}.{MastersFaultKind.STRIKE_MEMBERS}" for step in OF_MEMBERS}

NOT_DRAWN = {"SetServerMode", "AdoptTable"}
"""Changes of operators, which no client of a run asks for. No run loses the catalog, so there is nothing to adopt."""

CHANGES = {
    f"change.{kind.__name__}.{end}"
    for kind in Change.__args__
    if kind.__name__ not in NOT_DRAWN
    for end in ("done", "refused")
}

ACTIONS = {
    f"action.{kind.__name__}.{verdict}"
    for kind in ServerAction.__args__
    for verdict in (FenceVerdict.ACT, FenceVerdict.REFUSED)
}

OUTCOMES = {f"outcome.{outcome}" for outcome in BatchOutcome}

OTHERS = {
    "action.of_a_deposed_master",
    "deleted.Evicted",
    "deleted.Terminal",
    "log.proposed_by_deposed",
    "log.tail_lost",
    "log.tail_survived",
    "network.duplicated",
    "network.lost",
    "read.NOT_LEADER",
    "read.TOO_STALE",
    "read.answered",
    "read.by_follower",
    "read.by_leader",
    "read.confirmed",
    "refused.NOT_LEADER",
    "refused.NOT_REPLICATED",
    "refused.OUTCOME_UNKNOWN",
    "refused.TABLE_BUSY",
    "report.full",
    "report.incremental",
    "report.of_a_former_run",
    "report.two_leaders",
    "tablet.config_changed",
    "tablet.copied",
    "tablet.newcomer_of_pending",
    "unheard.AlterSchema",
}

COMING = {
    f"masters.{name}"
    for name in (
        "add",
        "added_again",
        "change_made",
        "changed_to_one",
        "changed_while_cut",
        "changed_while_down",
        "client_told_of_another_cluster",
        "config_committed",
        "config_lost",
        "config_survived",
        "copied",
        "copied_over",
        "disk_lost",
        "emptied_and_started",
        "file_of_two_clusters",
        "followed_by_client",
        "followed_by_server",
        "foreign",
        "lost_asked_for",
        "refused.CHANGE_NOT_YET",
        "refused.MEMBER_CHANGE_REFUSED",
        "refused.NOT_LEADER",
        "refused.NO_CHANGE",
        "refused_by_another_cluster",
        "remove",
        "removed_comes_back",
        "removed_runs_on",
        "replace",
        "replace_lost",
        "struck",
        "told_an_older_list",
        "told_of_another_cluster",
    )
} | {"read.by_removed_master"}
"""What happens in runs in which masters come and go. ``emptied_and_started``: under the uuid of a lost disk.
``lost_asked_for``: the same after its removal, and it is to be added again.

``copied``: a new master got the catalog as a copy, and ``copied_over``: so did one that was away for too long.

``config_survived``: another leader commits a change of masters, ``config_lost``: it is replaced in a log, and
``struck``: the master that was asked for a change has crashed.

``file_of_two_clusters``: a server whose file names a master of another cluster, too, has started."""

FLOORS = FAULTS | STRIKES | CHANGES | ACTIONS | OUTCOMES | OTHERS | COMING


def names_of(result: MastersRunResult) -> frozenset[str]:
    """Return the names of everything that happened in a run."""
    return frozenset(name for name, count in result.coverage.items() if count)


def run_until_seen() -> Iterator[MastersRunResult]:
    """Run seeds until every floor is met; in `make soak` run all seeds."""
    missing = set(FLOORS)
    for seed in in_order(first_seeds().masters_floors, SEEDS):
        result = run_seed(seed)
        yield result
        missing -= names_of(result)
        if not missing and not AT_LENGTH:
            return
