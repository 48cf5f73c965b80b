"""Which masters a tablet server knows. This is a pure core.

The committed config of the system tablet is the list of masters, and the newest config wins (ADR 80). The list in
``node.toml`` is for the first contact. The config that was stored by an earlier run may be old, too: all of its masters
may have been replaced since. So a server that has just started turns to both, until a member of its config names the
leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stelae.server.master.core.listed_masters import difference
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig


class KnownMasters:
    """The masters as one server knows them.

    Args:
        listed: the masters in ``node.toml``.
        stored: the newest config that an earlier run has stored; ``None`` if there is none.
    """

    def __init__(self, listed: Sequence[Member], stored: TabletConfig | None) -> None:
        self._listed = tuple(listed)
        self._met = False
        self.config = stored

    @property
    def config_id(self) -> OpId | None:
        """The op id of the newest known config; ``None`` if only the file is known."""
        return None if self.config is None else self.config.op_id

    @property
    def addresses(self) -> Mapping[NodeId, str]:
        """The masters to turn to, with their addresses. The config overrides the file."""
        known = {m.node_id: m.address for m in (self.config.members if self.config is not None else ())}
        if self.config is not None and self._met:
            return known
        return {**{m.node_id: m.address for m in self._listed}, **known}

    def answered(self, master: NodeId, leader: NodeId | None) -> bool:
        """Note the answer of a master, which names this leader. Return whether ``addresses`` has changed."""
        config = self.config
        if self._met or config is None or leader is None:
            return False
        if config.member(master) is None or config.member(leader) is None:
            return False
        before = self.addresses
        self._met = True
        return self.addresses != before

    def learn(self, config: TabletConfig) -> bool:
        """Replace the config by a newer one. Return whether it is newer. One without members is ignored."""
        if not config.members or (self.config is not None and config.op_id <= self.config.op_id):
            return False
        self.config, self._met = config, True
        return True

    def difference_to_file(self) -> str:
        """Return in words how the file differs from the config by now; empty if both have the same masters."""
        if self.config is None:
            return ""
        return difference(self._listed, self.config)
