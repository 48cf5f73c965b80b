"""Changes of the members of tablets, as operators make them, while everything else goes wrong.

A replica is replaced by one on another server, or a voter loses its vote, and gets it back from the leader. A server
that had the tablet before gets its replica as a copy over the tombstone."""

from __future__ import annotations

import random
from typing import Final

from stelae.client import AsyncReplicas
from stelae.local.node_process import NodeProcess
from stelae.sim.draw import chance, pick
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import MemberType
from stelae_chaos.fault_target import FaultTarget

REPLACED_SHARE: Final = 0.7
"""The share of the changes that replace a replica, if a server has none."""

TIMEOUT_S: Final = 15.0
"""How long a change may take. A change that takes longer is reported, and does not fail the run."""


async def change_members(target: FaultTarget, rng: random.Random) -> str:
    """Replace a replica of a tablet that is drawn, or take a vote away and give it back."""
    tablet_id = pick(rng, target.tablets)
    members = [(server.node_id, server.address) for server in target.servers]
    tracker = target.connection.member_lookup.tracker(tablet_id, members)
    replicas = AsyncReplicas(target.connection, tablet_id, tracker)
    try:
        view = await replicas.config(timeout_s=TIMEOUT_S)
        config = view.committed
        voters = [m.node_id for m in config.members if m.member_type is MemberType.VOTER]
        fresh = [server for server in target.servers if config.member(server.node_id) is None]
        if fresh and chance(rng, REPLACED_SHARE):
            return await _replace(target, replicas, pick(rng, voters), pick(rng, fresh))
        return await _take_vote(target, replicas, pick(rng, voters))
    except StelaeError as error:
        return f"members of {tablet_id} were not changed: {error}"


async def _replace(target: FaultTarget, replicas: AsyncReplicas, old: NodeId, new: NodeProcess) -> str:
    tablet_id: TabletId = replicas.tablet_id
    await replicas.add(new.address, node=new.node_id, wait=True, timeout_s=TIMEOUT_S)
    await replicas.remove(old, timeout_s=TIMEOUT_S)
    return f"the replica of {tablet_id} on {target.name_of(old)} is replaced by one on {new.name}"


async def _take_vote(target: FaultTarget, replicas: AsyncReplicas, voter: NodeId) -> str:
    await replicas.change_role(voter, MemberType.NON_VOTER, timeout_s=TIMEOUT_S)
    await replicas.change_role(voter, MemberType.PRE_VOTER, timeout_s=TIMEOUT_S)
    return f"{target.name_of(voter)} has lost its vote in {replicas.tablet_id}, and gets it back"
