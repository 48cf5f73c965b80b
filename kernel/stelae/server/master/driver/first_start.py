"""A master's first start: when its system tablet may be made, and when the cluster may go on record.

A directory without a system tablet is new, or it is a replacement under a name that has been used: a disk that was
lost. A replica that begins anew there would vote without what it has promised, and outvote those who know
(``durability.md`` rules 19 and 31). The two are told apart by the other masters:

1. The tablet is made only once all of them answer, name the same masters, and know of no cluster.
2. The cluster goes on record only once all of them have a system tablet with those members (``founding.py``).

So when a cluster is on record, every master has made its tablet, and a directory without one is not that of a master
who was there. Whose tablet has failed, or holds what is not applied, cannot say whether a cluster has begun, and is
asked again. Who lost its disk while another one was away since the beginning is told apart by the third: with two disks
of three lost nobody can tell, and an operator has to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from stelae.host.node import Node
from stelae.host.settings import TabletSettings
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import FOUNDING, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.server.frames import only_frame
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.listed_masters import check_listed
from stelae.server.master.driver.master_comparison import MasterComparison, silent, stages
from stelae.spi.errors import StelaeError
from stelae.wire.requests import Request

log = logging.getLogger(__name__)

AGAIN_S = 0.1
"""How often the others are asked, as long as they do not agree."""


class SystemTabletLoader(TabletLoader):
    """Brings a master's system tablet up; where there is none, ``FirstStart`` makes it, and nobody else."""

    def create(self, tablet: TabletSettings) -> bool:
        """Leave it to the others' answers.

        ``ConfigError``: there is one, and its members are other masters than the file lists."""
        found = self.inspect(tablet.id, self._engines.wal.logs())
        if found.decision.action is StartupAction.NOTHING:
            self.delayed[tablet.id] = "the other masters have not been asked yet"
        elif found.consensus is not None and found.consensus.committed_config.members:
            members = {member.node_id: member.address for member in found.consensus.committed_config.members}
            check_listed(tablet.members, members, "by this master's own record")
        return False


class FirstStart:
    """One master that has no system tablet yet, or whose cluster is not on record."""

    def __init__(self, node: Node, tablet: TabletSettings, catalog: Callable[[], Catalog | None]) -> None:
        assert isinstance(node.tablets, TabletLoader)
        self._node = node
        self._loader = node.tablets
        self._tablet = tablet
        self._catalog = catalog
        self._comparison = MasterComparison(node, tablet.members)
        self._making: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._told = ""

    def serve(self) -> None:
        """Answer other masters that ask."""
        self._node.messenger.serve(FOUNDING, self._answer)

    def stop(self) -> None:
        """Make and tell nothing more."""
        for task in (self._making, self._comparing):
            if task is not None:
                task.cancel()

    # -- the system tablet -----------------------------------------------------------------------

    def make(self) -> None:
        """Make the system tablet as soon as it may be, if there is none and it is not being made."""
        if self._making is None and SYSTEM_TABLET in self._loader.delayed:
            for member in self._tablet.members:
                if member.node_id != self._node.node_id:
                    self._node.messenger.add_peer(member.node_id, member.address)
            self._making = asyncio.get_running_loop().create_task(self._make())

    async def _make(self) -> None:
        while True:
            answers = await self._comparison.answers()
            differences = self._comparison.differences(answers)
            begun = stages(answers, BootstrapStage.BEGUN)
            if begun and not differences:
                self._keep_out(begun)
                return
            unsure = [
                f"master {where} cannot say yet whether it did" for where in stages(answers, BootstrapStage.UNKNOWN)
            ]
            objection = "; ".join([*differences, *silent(answers), *unsure])
            if not objection and not (objection := await self._create()):
                del self._loader.delayed[SYSTEM_TABLET]
                return
            self._loader.delayed[SYSTEM_TABLET] = objection
            self._warn(objection)
            await asyncio.sleep(AGAIN_S)

    def _keep_out(self, begun: list[str]) -> None:
        del self._loader.delayed[SYSTEM_TABLET]
        reason = (
            f"the cluster has begun (told by {', '.join(begun)}) and this master's directory is new: an empty one "
            "would vote without what the master has promised. Put its old directory back, or leave it down"
        )
        self._loader.fail(SYSTEM_TABLET, reason)

    async def _create(self) -> str:
        """Make the tablet and start its replica; return why that failed, if it did."""
        made: asyncio.Future[StelaeError | None] = asyncio.get_running_loop().create_future()
        TabletManager(self._node, self._loader).create(self._tablet, made.set_result)
        error = await made
        return "" if error is None else f"the system tablet cannot be made: {error}"

    # -- the cluster -----------------------------------------------------------------------------

    def compare(self, told: Callable[[str], None]) -> None:
        """See once whether the cluster may go on record; ``told`` gets what is against it, or an empty text."""
        if self._comparing is None or self._comparing.done():
            self._comparing = asyncio.get_running_loop().create_task(self._compare(told))

    async def _compare(self, told: Callable[[str], None]) -> None:
        answers = await self._comparison.answers()
        late = [f"master {where} has no system tablet yet" for where in stages(answers, BootstrapStage.NEW)]
        objection = "; ".join([*self._comparison.differences(answers), *silent(answers), *late])
        self._warn(objection)
        told(objection)

    def _warn(self, objection: str) -> None:
        if objection not in ("", self._told):
            log.warning("the cluster does not begin: %s", objection)
        self._told = objection

    # -- what the others ask ---------------------------------------------------------------------

    def _answer(self, request: Request) -> None:
        decode(only_frame(request), BootstrapRequest)
        replica = self._node.replicas.get(SYSTEM_TABLET)
        answer = BootstrapAnswer(
            masters=tuple((member.node_id, member.address) for member in self._tablet.members),
            members=() if replica is None else tuple(member.node_id for member in replica.status.config.members),
            stage=self._stage(),
        )
        request.reply([encode(answer)])

    def _stage(self) -> BootstrapStage:
        if SYSTEM_TABLET in self._node.failed_tablets:
            return BootstrapStage.UNKNOWN
        replica = self._node.replicas.get(SYSTEM_TABLET)
        if replica is None:
            return BootstrapStage.NEW
        catalog = self._catalog()
        if catalog is not None and catalog.cluster is not None:
            return BootstrapStage.BEGUN
        whole = catalog is not None and catalog.applied == replica.status.last
        return BootstrapStage.EMPTY if whole else BootstrapStage.UNKNOWN
