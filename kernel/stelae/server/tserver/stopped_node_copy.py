"""Copies the system tablet to a node whose master does not run: the remote bootstrap client of the seed.

Source: "Permanent failure handling of masters", step 6 of the failure and step 8 of the migration. The copy is that of
``lifecycle.tablet_copies``, with its guards, fences, stage and crash points. Here the node asks for it itself, and not
the leader. That is safe because of what is checked before: the leader does not know this node as one that has, or had,
a vote (:func:`copy_order`), and a majority confirms that it leads (:func:`still_leads`). What has promised nothing may
begin with the state of any source (``durability.md`` rule 19)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.member_promises import type_that_counts
from stelae.host.node import Node
from stelae.host.start_copy import StartCopy
from stelae.lifecycle.copy_environment import CopyControlFlags
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.spi.copy_plan import CopyProgress
from stelae.spi.errors import MemberChangeRefused, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.members import VOTING, MemberType


def copy_order(view: ConfigView, own: NodeId, consensus: str, table_name: str) -> StartCopy:
    """Return the copy of the system tablet to this node, from the leader or else another voter.

    A node that is no member yet may have it, too: it joins the masters later, by ``stelae master add`` or ``replace``.

    Args:
        view: what the leader answers.
        own: this node.
        consensus: the name of its consensus engine.
        table_name: the name of the table.

    Raises:
        MemberChangeRefused: this node has, or had, a vote. Its new directory must not get one again.
    """
    counts = type_that_counts(own, view.config, view.committed)
    voted = {node for config in (view.config, view.committed) for node in (*config.voters(), *config.former_voters)}
    if counts in VOTING or own in voted:
        raise MemberChangeRefused(
            f"node {own} has, or had, a vote by config {view.config.op_id}, and this directory does not know what it "
            "has promised. Put its old directory back; or format one with a new uuid, copy to that, and let it take "
            "the place: stelae master replace; nothing was changed"
        )
    leader = [member for member in view.config.members if member.node_id == view.node_id]
    voters = [m for m in view.config.members if m.member_type is MemberType.VOTER and m.node_id != view.node_id]
    return StartCopy(
        to=own,
        leader=view.node_id,
        term=view.term,
        tablet_id=SYSTEM_TABLET,
        table_name=table_name,
        consensus=consensus,
        config=view.config.op_id,
        member_type=counts or MemberType.PRE_VOTER,
        hosted=False,
        log_base=view.log_base,
        sources=(*leader, *voters),
    )


def still_leads(view: ConfigView, later: Sequence[ConfigView]) -> bool:
    """Return whether the master of a view surely led when it answered, so that no newer config was committed then.

    A leader of a later term has the vote, in that term, of a majority that overlaps each majority of the config in
    force and of the committed one. So there was none while a majority of both knew no later term.

    Args:
        view: what the leader answered.
        later: what masters have answered when they were asked after that, the leader among them."""
    current = {one.node_id for one in later if one.term <= view.term}
    return all(2 * len(current.intersection(one.voters())) > len(one.voters()) for one in (view.config, view.committed))


class SystemTabletCopy:
    """The only service of a node that runs for one copy. A ``Service`` (``stelae.spi.hooks``).

    It serves no requests of leaders. ``done`` of :meth:`begin` is called once, on the event loop."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.tablets, TabletLoader)
        self._node = node
        self._tombstones = Tombstones(node)
        self._target = CopyTargetService(node, TabletManager(node, node.tablets), self._tombstones)
        self._copy: TabletCopy | RowsCopy | None = None

    def start(self) -> None:
        """Make the target of the copy."""
        self._tombstones.start()
        self._target.start()

    def stop(self) -> None:
        """Cancel the copy. What has arrived stays, and the next copy goes on with it."""
        self._target.stop()

    def begin(self, asked: StartCopy, done: Callable[[str], None]) -> None:
        """Begin the copy. ``done`` gets an empty text once the replica is complete, else why it is not.

        Raises ``Unavailable`` if it cannot begin."""
        copies = self._target.copies
        if copies is None:
            raise Unavailable("this node's settings choose no transport for copies; set [engines] copy")
        copies.start(asked)
        copy = self._copy = copies.running.get(SYSTEM_TABLET)
        if copy is None:
            raise Unavailable(f"the copy cannot begin: {copies.last_refusal(SYSTEM_TABLET)}")
        copies.at_end(SYSTEM_TABLET, lambda committed: done("" if committed else copy.reason or "it was cancelled"))

    @property
    def progress(self) -> CopyProgress:
        """How far the copy is; zeros before the source has answered."""
        return CopyControlFlags().latest if self._copy is None else self._copy.control.latest
