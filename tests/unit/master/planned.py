"""A led cluster with a planner that tests speak through, and a table of one tablet on its first three servers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from stelae.protocol.catalog_names import TabletState
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.policy import Action, PolicySnapshot
from tests.unit.master.master_with_servers import (
    SERVERS,
    MasterWithServers,
    changes,
    create,
    place_on_the_least_loaded,
    sent,
    status,
)

LEADER, SECOND, THIRD, FOURTH, FIFTH = SERVERS


class Planner:
    """Places new tablets; proposes what a test wants of others; remembers what it was shown."""

    def __init__(self) -> None:
        self.proposed: tuple[Action, ...] = ()
        self.shown: PolicySnapshot | None = None

    def __call__(self, snapshot: PolicySnapshot, rng: random.Random) -> tuple[Action, ...]:
        self.shown = snapshot
        return (*place_on_the_least_loaded(snapshot, rng), *self.proposed)


def with_a_tablet(planner: Planner, reporting: Sequence[NodeId] = SERVERS) -> MasterWithServers:
    """A leader that hears five servers, and a table of one tablet on the first three; who reports it may be fewer."""
    led = MasterWithServers(planner=planner)
    led.lead(1)
    led.hear(SERVERS)
    led.create_running(create(buckets=1), reporting)
    return led


def the_tablet(cluster: MasterWithServers) -> TabletId:
    return next(t.tablet_id for t in cluster.core.catalog.tablets.values() if t.state is TabletState.RUNNING)


def config_of(cluster: MasterWithServers) -> TabletConfig:
    config = cluster.core.catalog.tablets[the_tablet(cluster)].config
    assert config is not None
    return config


def report(cluster: MasterWithServers, server: NodeId, upto: int = 2, **more: Any) -> list[Any]:
    """A server reports its replica anew; returns the actions that follow."""
    cluster.effects.clear()
    more = {"op_id": config_of(cluster).op_id, "leads": server == LEADER, **more}
    cluster.heartbeat(server, changes(status(the_tablet(cluster), config_of(cluster), **more), since=1, upto=upto))
    cluster.commit()
    return sent(cluster.effects)
