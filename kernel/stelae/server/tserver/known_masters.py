"""Which masters a tablet server knows. This is a pure core.

The committed config of the system tablet is the list of masters, and the newest config wins (ADR 80). The list in
``node.toml`` is for the first contact. But a config may be old: all of its masters may have been replaced while the
server was down, or while the network kept it from them. So a server follows its config only as long as a member of it
names the leader. Otherwise it is *lost*: it turns to the masters of ``node.toml``, too, and asks all nodes that it
knows (``MasterList``).

A server stays with the cluster whose masters it has heard first. Another one may have the same id by mistake, and the
higher op id: its masters are ignored, and refuse the heartbeats of this server. Only an operator who has lost all
masters hands the server to others (``stelae recover catalog``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stelae.lifecycle.masters_file import StoredMasters
from stelae.server.master.core.listed_masters import difference
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

LOST_US = 5_000_000
"""The time without a leader after which a server is lost, in microseconds. An election takes less."""


class KnownMasters:
    """The masters as one server knows them.

    Args:
        listed: the masters in ``node.toml``.
        stored: the masters that an earlier run has stored; ``None`` if there are none.

    Attributes:
        followed: the newest known config, and when its cluster was put on record; ``None`` if only the file is known.
        lost: whether no member of the config has named the leader yet, or for too long.
    """

    def __init__(self, listed: Sequence[Member], stored: StoredMasters | None) -> None:
        self._listed = tuple(listed)
        self._met_us = 0  #: When a member of the config last named the leader.
        self.followed = stored
        self.lost = True

    @property
    def config(self) -> TabletConfig | None:
        """The newest known config; ``None`` if only the file is known."""
        return None if self.followed is None else self.followed.config

    @property
    def config_id(self) -> OpId | None:
        """The op id of the newest known config; ``None`` if only the file is known."""
        return None if self.followed is None else self.followed.config.op_id

    @property
    def cluster_created_us(self) -> int:
        """When the cluster of the config was put on record; 0 without a config."""
        return 0 if self.followed is None else self.followed.cluster_created_us

    @property
    def addresses(self) -> Mapping[NodeId, str]:
        """The masters to turn to, with their addresses. The config overrides the file."""
        known = {m.node_id: m.address for m in (self.config.members if self.config is not None else ())}
        if not self.lost:
            return known
        return {**{m.node_id: m.address for m in self._listed}, **known}

    @property
    def asks(self) -> bool:
        """Whether the server asks other nodes which masters there are.

        Without a config it goes by its file: masters also name the config of a cluster that is not on record yet."""
        return self.lost and self.config is not None

    def are_others(self, cluster_created_us: int) -> bool:
        """Whether the masters of a cluster that was put on record then are not those of this server's cluster."""
        return self.followed is not None and cluster_created_us not in (0, self.followed.cluster_created_us)

    def learn(self, config: TabletConfig, cluster_created_us: int) -> bool:
        """Replace the config by a newer one of the same cluster. Return whether it is newer.

        One without members, of another cluster, or of a cluster that is not known to be on record is ignored.

        A removed master and another tablet server may name a config that is old, too. So the server stays lost until a
        member of the new config answers."""
        if not config.members or not cluster_created_us or self.are_others(cluster_created_us):
            return False
        if self.config is not None and config.op_id <= self.config.op_id:
            return False
        self.follow(StoredMasters(cluster_created_us, config))
        return True

    def follow(self, masters: StoredMasters) -> None:
        """Turn to these masters, whatever was known before."""
        self.followed, self.lost = masters, True

    def answered(self, master: NodeId, leader: NodeId | None, now_us: int) -> bool:
        """Note the answer of a master, which names this leader. Return whether ``addresses`` has changed."""
        config = self.config
        if config is None or leader is None or config.member(master) is None or config.member(leader) is None:
            return False
        self._met_us = now_us
        return self._set_lost(False)

    def waited(self, now_us: int) -> bool:
        """Note the time: a server that hears of no leader for long is lost. Return whether ``addresses`` changed."""
        return self._set_lost(self.lost or now_us - self._met_us > LOST_US)

    def _set_lost(self, lost: bool) -> bool:
        before, self.lost = self.addresses, lost
        return self.addresses != before

    def difference_to_file(self) -> str:
        """Return in words how the file differs from the config by now; empty if both have the same masters."""
        if self.config is None:
            return ""
        return difference(self._listed, self.config)
