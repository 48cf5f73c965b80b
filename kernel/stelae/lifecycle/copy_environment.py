"""What all copies of a node share: their sources, the transport, and the parts of the node that they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import CopyStage
from stelae.lifecycle.replaced_damage import ReplacedDamage
from stelae.lifecycle.side_work import DoneAtOnce, SideWork
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tombstones import Tombstones
from stelae.spi.copy import CopyNetwork, CopyTarget
from stelae.spi.copy_plan import CopyOffer, CopyOutcome, CopyPlan, CopyProgress
from stelae.spi.ids import TabletId
from stelae.spi.members import Member

if TYPE_CHECKING:
    from stelae.host.node import Node
    from stelae.lifecycle.tablet_manager import TabletManager


class CopySources(Protocol):
    """The sources of copies on other nodes. All calls are on the event loop."""

    def begin(
        self,
        source: Member,
        tablet_id: TabletId,
        done: Callable[[CopyOffer | Exception], None],
        *,
        as_export: bool = False,
        ask_again: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask a source to open a session. ``done`` is called once, with the offer or a ``StelaeError``.

        Args:
            source: the member that is asked.
            tablet_id: the tablet.
            done: gets the result.
            as_export: ask for the rows as of now, in the form that every store engine can read, and not for files.
            ask_again: whether to ask the same source again. Called when no answer came in time, and when the source is
                still taking the snapshot for a request without an answer.
        """

    def keep_alive(self, offer: CopyOffer, done: Callable[[Exception | None], None]) -> None:
        """Restart the time to live of a session. ``done`` is called once, with ``None`` or a ``StelaeError``:
        ``CopySessionEnded`` if the source has ended it."""

    def committed_index(self, offer: CopyOffer, tablet_id: TabletId, done: Callable[[int | Exception], None]) -> None:
        """Ask the source of an offer up to which index it knows the tablet's log as committed. ``done`` is called once,
        with the index or a ``StelaeError``."""

    def end(self, offer: CopyOffer) -> None:
        """End a session. Harmless if it has ended. The message may be lost; the session ends by itself then."""

    def network(self) -> CopyNetwork:
        """Return the way to the source for one run of a transport, which uses it on another thread."""


PAUSED_US = 100_000
"""How often a paused copy asks whether it may go on, in microseconds."""


class CopyControlFlags:
    """How the event loop controls the transport of a copy, which runs on another thread: a ``CopyControl``."""

    def __init__(self) -> None:
        self.why_cancelled = ""
        self.paused = False  #: An operator has paused the copy: it fetches nothing, and keeps its session.
        self.newer_leader_asks = False  #: A leader of a later term has asked for this copy.
        self.latest = CopyProgress(bytes_done=0, bytes_total=0, bytes_fetched=0, eta_ms=None)

    def admit(self, size_bytes: int) -> int:
        """Allow the copy to fetch bytes unless it is paused. The limits of the node hold besides."""
        return PAUSED_US if self.paused else 0

    def cancelled(self) -> bool:
        """Return whether the copy must end."""
        return bool(self.why_cancelled)

    def asks_again(self) -> bool:
        """Return whether a source that did not answer in time is asked again.

        The sources of a copy are those that its leader could reach. If another leader asks since, it knows better
        which members answer, and its request can only begin once this copy has ended."""
        return not self.newer_leader_asks and not self.cancelled()

    def progress(self, progress: CopyProgress) -> None:
        """Take note of the progress."""
        self.latest = progress


@dataclass(frozen=True, kw_only=True)
class CopyEnvironment:
    """What all copies of a node share."""

    node: Node
    loader: TabletLoader
    manager: TabletManager
    tombstones: Tombstones
    sources: CopySources
    transport: CopyTarget
    settings: StageSettings
    #: Checks what only the server understands of a copied superblock. Raises ``StelaeError``.
    check_facts: Callable[[CopyFacts], None]
    #: Whether a node of this kind hosts the tablet: masters host only their own.
    hosts: Callable[[TabletId], bool] = lambda _tablet: True
    #: Tells the source of an offer which item arrived damaged, so that it verifies its own bytes. Ends the session.
    source_damaged: Callable[[CopyOffer, str], None] = lambda _offer, _item: None
    #: Called when the guards have let a copy of a tablet begin, before a source is asked. May be called again.
    admitted: Callable[[TabletId], None] = lambda _tablet: None
    #: What one stage does beside its writes.
    side_work: Callable[[], SideWork] = DoneAtOnce
    replaced_damage: ReplacedDamage = field(default_factory=ReplacedDamage)
    crash: CrashPoints = NO_CRASH

    def stage(self, tablet_id: TabletId) -> CopyStage:
        """Return the stage of a tablet."""
        node = self.node
        return CopyStage(node.files, node.layout, tablet_id, self.settings.bytes_max, self.crash, self.side_work)

    def fetch(self, plan: CopyPlan, stage: CopyStage, control: CopyControlFlags) -> Steps[CopyOutcome]:
        """Run the transport, and wait until what it finished is durable. Raises ``StorageError`` if it cannot be."""
        network = self.sources.network()

        def run() -> CopyOutcome:
            try:
                outcome = self.transport.run(plan, have=stage.have(), sink=stage, network=network, control=control)
                stage.settle()
            finally:
                stage.close()
            return outcome

        outcome: CopyOutcome = yield OffLoop(run)
        return outcome
