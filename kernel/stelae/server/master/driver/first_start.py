"""A master's first start: when its system tablet may be created, and when the cluster may go on record.

A directory without a system tablet is new, or it is a replacement under a name that has been used: a disk that was
lost. A replica that begins anew there would vote without what it has promised, and outvote those who know
(``durability.md`` rules 19 and 31). The other masters know which of the two it is:

1. The tablet is created only once all of them answer, name the same masters, and know of no cluster.
2. The cluster goes on record only once all of them have a system tablet with those members (``cluster_bootstrap``).
3. If one of them knows a cluster in which this master has, or had, no vote, this master *joins* (ADR 80): it creates
   nothing, and waits until the leader of that cluster fills it, as any new replica. A master that no list names joins,
   too. If it has, or had, a vote there, its disk was lost, and it refuses for good, also if it was removed since.

So when a cluster is on record, every master has created its tablet, and a directory without one is not that of a master
of this cluster. A master whose tablet has failed, or holds entries that are not applied, cannot say whether a cluster
has begun, and is asked again. If a master lost its disk while another one was away since the beginning, the third one
knows. If two disks of three are lost, only an operator can know."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stelae.host.member_promises import type_that_counts
from stelae.host.ports import Timer
from stelae.host.settings import TabletSettings
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.server.frames import only_frame
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.listed_masters import difference
from stelae.server.master.driver.master_comparison import (
    MasterAnswers,
    MasterComparison,
    masters_by,
    silent,
    stages,
    voter_according_to,
)
from stelae.server.master.driver.ports import CreateTablet, IncomingRequest, MasterNode
from stelae.spi.consensus import Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import VOTING, TabletConfig

log = logging.getLogger(__name__)

ASK_AGAIN_US = 100_000
"""How long after their answers the other masters are asked again, as long as they do not agree."""

_NO_CONFIG = TabletConfig(op_id=ZERO, members=())


class SystemTabletLoader(TabletLoader):
    """Brings a master's system tablet up. ``FirstStart`` alone creates it where there is none."""

    def create(self, tablet: TabletSettings) -> bool:
        """Leave the creation to ``FirstStart``, which asks the other masters first.

        If the tablet exists, its members are the masters, whatever the file lists by now (ADR 80)."""
        found = self.inspect(tablet.id, self._engines.wal.logs())
        if found.decision.action is StartupAction.NOTHING:
            self.delayed[tablet.id] = "the other masters have not been asked yet"
            return False
        config = None if found.consensus is None else found.consensus.committed_config
        if config is not None and config.members and (told := difference(tablet.members, config)):
            log.warning("%s", told)
        return False


class FirstStart:
    """One master that has no system tablet yet, or whose cluster is not on record.

    Args:
        loader: of this node's tablets; its ``delayed`` says why the system tablet is not there yet.
        create_tablet: creates the system tablet, and starts its replica.
        catalog: returns the catalog once it is loaded.
    """

    def __init__(
        self,
        node: MasterNode,
        tablet: TabletSettings,
        loader: TabletLoader,
        create_tablet: CreateTablet,
        catalog: Callable[[], Catalog | None],
    ) -> None:
        self._node = node
        self._tablet = tablet
        self._loader = loader
        self._create_tablet = create_tablet
        self._catalog = catalog
        self._comparison = MasterComparison(node, tablet.members)
        self._creating = False
        self._comparing = False
        self._stopped = False
        self._refused = False  #: For good, because the directory is new.
        self._timer: Timer | None = None
        self._last_warning = ""

    def serve(self) -> None:
        """Answer other masters that ask."""
        self._node.messenger.serve(BOOTSTRAP, self._answer)

    def stop(self) -> None:
        """Create and compare nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- the system tablet -----------------------------------------------------------------------

    def create_when_agreed(self) -> None:
        """Create the system tablet as soon as the other masters allow it, if it does not exist."""
        if self._creating or SYSTEM_TABLET not in self._loader.delayed:
            return
        self._creating = True
        for member in self._tablet.members:
            if member.node_id != self._node.node_id:
                self._node.messenger.add_peer(member.node_id, member.address)
        self._comparison.ask(self._judge)

    def _judge(self, answers: MasterAnswers) -> None:
        """Create the tablet, or never, or wait, by what the other masters say."""
        if self._stopped:
            return
        if self._node.replicas.get(SYSTEM_TABLET) is not None:  # The leader of a cluster has filled it meanwhile.
            self._loader.delayed.pop(SYSTEM_TABLET, None)
            return
        begun = stages(answers, BootstrapStage.BEGUN)
        if voted := voter_according_to(answers, self._node.node_id):
            self._refuse_for_good(voted)
            return
        if begun or not self._is_listed:
            self._ask_again(
                self._joins(answers, begun)
            )  # No file has to be edited for that, so differences do not matter.
            return
        unsure = [
            f"master {address} cannot say yet whether it did" for address in stages(answers, BootstrapStage.UNKNOWN)
        ]
        obstacle = "; ".join([*self._comparison.differences(answers), *silent(answers), *unsure])
        if obstacle:
            self._ask_again(obstacle)
        else:
            self._create_tablet(self._tablet, self._created)

    @property
    def _is_listed(self) -> bool:
        return any(member.node_id == self._node.node_id for member in self._tablet.members)

    def _joins(self, answers: MasterAnswers, begun: list[str]) -> str:
        """Return what a master waits for that joins a cluster."""
        if begun:
            master = begun[0]
            told = f"the cluster has begun without this master (according to {', '.join(begun)})"
            told += f" with the masters {masters_by(answers[master])}"
        else:
            listed = [member.address for member in self._tablet.members]
            told = f"[masters] does not list this master, and no cluster is known at {', '.join(listed)}"
            master = listed[0]
        return f"{told}; to let it join, run: stelae master add {self._node.address} --connect {master}"

    def _created(self, error: StelaeError | None) -> None:
        if error is None:
            del self._loader.delayed[SYSTEM_TABLET]
        else:
            self._ask_again(f"the system tablet cannot be made: {error}")

    def _ask_again(self, obstacle: str) -> None:
        if self._stopped:
            return
        self._loader.delayed[SYSTEM_TABLET] = obstacle
        self._warn(obstacle)
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + ASK_AGAIN_US, lambda: self._comparison.ask(self._judge))

    def _refuse_for_good(self, begun: list[str]) -> None:
        del self._loader.delayed[SYSTEM_TABLET]
        self._refused = True
        reason = (
            f"the cluster has begun (according to {', '.join(begun)}) and this master's directory is new: an empty one "
            "would vote without what the master has promised. Put its old directory back; or format it without --uuid, "
            "take its entry out of [masters], and replace the lost master: stelae master replace (if that was removed "
            "already: stelae master add)"
        )
        self._loader.fail(SYSTEM_TABLET, reason)

    # -- the cluster -----------------------------------------------------------------------------

    def compare(self, done: Callable[[str], None]) -> None:
        """See once whether the cluster may go on record; ``done`` gets what is against it, or an empty text."""
        if self._comparing:
            return
        self._comparing = True

        def compared(answers: MasterAnswers) -> None:
            self._comparing = False
            if not self._stopped:
                done(self._obstacle_to_cluster(answers))

        self._comparison.ask(compared)

    def _obstacle_to_cluster(self, answers: MasterAnswers) -> str:
        late = [f"master {address} has no system tablet yet" for address in stages(answers, BootstrapStage.NEW)]
        obstacle = "; ".join([*self._comparison.differences(answers), *silent(answers), *late])
        self._warn(obstacle)
        return obstacle

    def _warn(self, obstacle: str) -> None:
        if obstacle not in ("", self._last_warning):
            log.warning("this master waits: %s", obstacle)
        self._last_warning = obstacle

    # -- what the others ask ---------------------------------------------------------------------

    def _answer(self, request: IncomingRequest) -> None:
        decode(only_frame(request), BootstrapRequest)
        replica = self._node.replicas.get(SYSTEM_TABLET)
        config = _NO_CONFIG if replica is None else replica.status.config
        answer = BootstrapAnswer(
            masters=tuple((member.node_id, member.address) for member in self._tablet.members),
            members=tuple(member.node_id for member in config.members),
            stage=self._stage(),
            joining=() if replica is None else _never_voters(replica.status),
            cluster_created_us=cluster_created_us(self._catalog()),
            former_voters=config.former_voters,
            config_id=config.op_id if config.members else None,
            is_new=replica is None and (self._refused or SYSTEM_TABLET in self._loader.delayed),
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
        all_applied = catalog is not None and catalog.applied == replica.status.last
        return BootstrapStage.EMPTY if all_applied else BootstrapStage.UNKNOWN


def cluster_created_us(catalog: Catalog | None) -> int:
    """Return when the cluster of a catalog was put on record; 0 if it was not."""
    return 0 if catalog is None else catalog.cluster_created_us


def _never_voters(status: Status) -> tuple[NodeId, ...]:
    """Return the members without a vote that never had one."""
    config, committed = status.config, status.committed_config
    names = [member.node_id for member in config.members]
    return tuple(name for name in names if type_that_counts(name, config, committed) not in VOTING)
