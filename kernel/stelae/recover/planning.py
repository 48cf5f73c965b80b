"""Decides which tablets have lost their majority, ranks their survivors, and says what is lost. Pure.

Source: seed "Raft config change", *Restoring availability after catastrophic data loss*, step 1: the most up-to-date
replica that is left. A log with a higher last op id has every entry that a log with a lower one knows as committed. So
survivors are ranked by their last op id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from stelae.protocol.recovery_messages import SurvivorView
from stelae.recover.loss import loss_text
from stelae.recover.plan import LostMember, NotPlanned, PlannedNode, RankedReplica, TabletPlan
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import VOTING, MemberType, TabletConfig
from stelae.spi.recovery_epoch import first_term, recovery_epoch

RUNS = ("RUNNING", "CONFIGURING")


class SurveyedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one node to a survey."""

    node_id: NodeId
    address: str
    problem: str = ""  #: Why it did not answer; empty if it did.
    silent_ms: int | None = None  #: Time since its last heartbeat to the masters; ``None``: not known.
    views: Mapping[TabletId, SurvivorView] = {}


class KnownTablet(msgspec.Struct, frozen=True, kw_only=True):
    """A tablet as the masters know it. Without masters it has only its id."""

    tablet_id: TabletId
    table: str = ""
    replicas_wanted: int = 0
    members: tuple[tuple[NodeId, str], ...] = ()
    learners: tuple[NodeId, ...] = ()
    config: OpId | None = None  #: The op id of the config with these members; ``None``: not known.


Nodes = Mapping[NodeId, SurveyedNode]

_Electorate: TypeAlias = tuple[tuple[NodeId, ...], Mapping[NodeId, SurvivorView]]
"""The voters of a config, and the survivors that may vote by it."""


def plan_tablet(tablet: KnownTablet, nodes: Nodes, tag: int) -> TabletPlan | NotPlanned:
    """Return how to recover a tablet, or why it is left alone.

    Args:
        tablet: the tablet, as the masters know it.
        nodes: the answers of all nodes that may have a replica of it.
        tag: drawn for this plan (``stelae.spi.recovery_epoch``).
    """
    views = _running(tablet.tablet_id, nodes)
    alive = _has_majority(tablet, views)
    if alive is not None:
        return NotPlanned(tablet_id=tablet.tablet_id, table=tablet.table, why=alive, has_majority=True)
    ranking = _ranking(tablet, views, nodes)
    usable = [one for one in ranking if not one.unusable]
    lost = _lost(tablet, views, nodes)
    if not usable:
        why = _why_unrecoverable(ranking, lost)
        return NotPlanned(tablet_id=tablet.tablet_id, table=tablet.table, why=why, has_majority=False)
    best = usable[0]
    config = views[best.node_id].config
    assert config is not None
    epoch = max(recovery_epoch(view.term) for view in views.values())
    others = (one for one in ranking if one.node_id != best.node_id)
    return TabletPlan(
        tablet_id=tablet.tablet_id,
        table=tablet.table,
        voters=len(config.voters()),
        replicas_wanted=tablet.replicas_wanted,
        term=first_term(epoch + 1, tag),
        survivor=PlannedNode(node_id=best.node_id, address=best.address),
        last=best.last,
        config_id=config.op_id,
        others=tuple(PlannedNode(node_id=one.node_id, address=one.address) for one in others),
        lost=lost,
        ranking=ranking,
        loss=loss_text(best, ranking, lost, voters=len(config.voters()), table=tablet.table),
    )


def _running(tablet_id: TabletId, nodes: Nodes) -> dict[NodeId, SurvivorView]:
    found = {node_id: node.views[tablet_id] for node_id, node in nodes.items() if tablet_id in node.views}
    return {node_id: view for node_id, view in found.items() if view.state in RUNS and view.config is not None}


def _has_majority(tablet: KnownTablet, views: Mapping[NodeId, SurvivorView]) -> str | None:
    """Return why the tablet needs no recovery, or ``None`` if it has lost its majority.

    A replica that a recovery left behind elects no replica, so it counts for no majority."""
    for node_id, view in views.items():
        if view.role == "LEADER" and view.serving:
            return f"it has a leader, node {node_id} in term {view.term}; a tablet with a majority needs no recovery"
    epoch = max((recovery_epoch(view.term) for view in views.values()), default=0)
    able = {node_id: view for node_id, view in views.items() if recovery_epoch(view.last.term) == epoch}
    newest = _newest_config(views)
    groups: list[_Electorate] = [(() if newest is None else newest.voters(), able)]
    if _masters_know_more(tablet, newest):
        groups.append((tuple(node for node, _ in tablet.members if node not in tablet.learners), able))
    groups += (_followers_of(node_id, view, able) for node_id, view in able.items())
    for voters, voting in groups:
        alive = [node_id for node_id in voters if node_id in voting]
        if len(alive) > len(voters) // 2:
            counted = f"{len(alive)} of its {len(voters)} voters answer, which is a majority"
            return f"{counted}; it elects a leader by itself: look again with `stelae check`"
    return None


def _followers_of(candidate: NodeId, own: SurvivorView, able: Mapping[NodeId, SurvivorView]) -> _Electorate:
    """Return the voters by the config of a candidate, and the survivors that would vote for it.

    Its config may be older than that of another survivor, whose newer one is not committed and is replaced then."""
    voters = () if own.config is None else own.config.voters()
    if candidate not in voters:
        return (), {}
    return voters, {node_id: view for node_id, view in able.items() if view.last <= own.last}


def _masters_know_more(tablet: KnownTablet, newest: TabletConfig | None) -> bool:
    """Return whether the masters may know a newer config than all survivors.

    Theirs is committed. A survivor has a newer one in its log if the change was still being replicated when the
    majority was lost, and then the masters never hear of it."""
    return newest is None or tablet.config is None or tablet.config > newest.op_id


def _newest_config(views: Mapping[NodeId, SurvivorView]) -> TabletConfig | None:
    configs = [view.config for view in views.values() if view.config is not None]
    return max(configs, key=lambda config: config.op_id, default=None)


def _ranking(tablet: KnownTablet, views: Mapping[NodeId, SurvivorView], nodes: Nodes) -> tuple[RankedReplica, ...]:
    newest = _newest_config(views)
    members = {node_id for node_id, _ in tablet.members}
    if newest is not None and not (_masters_know_more(tablet, newest) and members & set(views)):
        members |= {member.node_id for member in newest.members}
    ranked = [
        RankedReplica(
            node_id=node_id,
            address=nodes[node_id].address,
            last=view.last,
            commit=view.commit,
            applied_us=view.applied_us,
            unusable=_why_unusable(node_id, view, members),
        )
        for node_id, view in views.items()
    ]
    ranked.sort(key=lambda one: (one.last, one.commit, one.node_id), reverse=True)
    return tuple(ranked)


def _why_unusable(node_id: NodeId, view: SurvivorView, members: set[NodeId]) -> str:
    own = None if view.config is None else view.config.member(node_id)
    if own is None or node_id not in members:
        return "it was removed from the tablet"
    if view.log_only or own.member_type in (MemberType.WITNESS, MemberType.PRE_WITNESS):
        return "it has the log only (a witness)"
    return ""


def _lost(tablet: KnownTablet, views: Mapping[NodeId, SurvivorView], nodes: Nodes) -> tuple[LostMember, ...]:
    newest = _newest_config(views)
    listed = dict(tablet.members)
    learners = set(tablet.learners)
    if newest is not None:
        listed |= {member.node_id: member.address for member in newest.members}
        learners |= {member.node_id for member in newest.members if member.member_type not in VOTING}
    return tuple(
        LostMember(
            node_id=node_id,
            address=address,
            why=_why_lost(tablet.tablet_id, nodes.get(node_id)),
            silent_ms=nodes[node_id].silent_ms if node_id in nodes else None,
        )
        for node_id, address in sorted(listed.items())
        if node_id not in views
    )


def _why_lost(tablet_id: TabletId, node: SurveyedNode | None) -> str:
    if node is None:
        return "its server is not known"
    if node.problem:
        return node.problem
    view = node.views.get(tablet_id)
    if view is None:
        return (
            "its server answers, and has no replica that runs: it was deleted, is being copied, or its copy ended early"
        )
    return f"{view.state}: {view.failure}" if view.failure else view.state


def _why_unrecoverable(ranking: tuple[RankedReplica, ...], lost: tuple[LostMember, ...]) -> str:
    found = [f"{one.address}: {one.unusable}" for one in ranking] + [f"{one.address}: {one.why}" for one in lost]
    fact = "no replica with its rows answers" + (f" ({'; '.join(found)})" if found else "")
    next_step = "start one of its servers again, or restore a replica with `stelae tablet quarantine restore`"
    return f"{fact}; {next_step}, or restore the table from a backup"
