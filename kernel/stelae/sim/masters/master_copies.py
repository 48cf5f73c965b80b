"""Copies of the catalog between simulated masters: the services of production, on virtual threads.

A new master whose leader has collected its log gets a copy, and so does one that was away for too long."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from stelae.host.node import Node
from stelae.lifecycle.side_work import DoneAtOnce
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.server.tserver.copy_service import CopyService
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.server.tserver.member_service import MemberService
from stelae.sim.hosting.node_messenger import NodeMessenger
from stelae.sim.hosting.virtual_threads import ThreadedPool, VirtualCalls, VirtualThreads
from stelae.sim.masters.peer_link import MasterLink
from stelae.sim.process import DurationRange, Process


def start_copies(
    node: Node,
    manager: TabletManager,
    tombstones: Tombstones,
    link: MasterLink,
    process: Process,
    rng: Callable[[str], random.Random],
    step_us: DurationRange,
) -> None:
    """Serve and make copies during one run of a master's process.

    Args:
        rng: returns the random stream with a name, of this run of the process.
        step_us: shortest and longest duration of one step of a copy.
    """
    threads = VirtualThreads(process)
    calls: Callable[[], VirtualCalls] = partial(VirtualCalls, process, threads)

    def pool(name: str) -> ThreadedPool:
        return ThreadedPool(process, threads, rng(name), name, lambda: step_us)

    copier = cast(
        Node,
        _CopyingNode(
            node,
            messenger=NodeMessenger(link, process, link.incarnation_id),
            copies=pool("copy"),
            copy_snapshots=pool("copy-take"),
            copy_reads=pool("copy-read"),
        ),
    )
    tombstones.start()
    CopyTargetService(copier, manager, tombstones, calls, DoneAtOnce).start()
    CopyService(copier, calls).start()
    MemberService(copier).start()  # The target of a copy asks its source what is committed.


class _CopyingNode:
    """A master's node as these services see it: with pools for copies, and a messenger that knows lanes and frames."""

    def __init__(self, node: Node, **parts: Any) -> None:
        self._node = node
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        return self._parts[name] if name in self._parts else getattr(self._node, name)
