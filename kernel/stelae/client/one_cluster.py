"""Refuses addresses of two clusters: a client would use whichever answers first, and write to a cluster by chance.

The hello tells clusters with different ids apart. Those with the same id differ in their creation, which masters and
tablet servers name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView, creation_text
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId
from stelae.wire.messenger import Messenger
from stelae.wire.refusals import WrongCluster

CHECK_S = 1.0
"""How long the nodes are asked of which cluster they are, in seconds. One that does not answer refuses nothing."""

AGAIN_S = 0.05
"""Pause before nodes are asked again of which one has just started, in seconds."""

NEXT_STEP = "connect to nodes of one cluster only"


async def check_one_cluster(messenger: Messenger, nodes: Mapping[NodeId, str]) -> None:
    """Raise ``WrongCluster`` if nodes, given with their addresses, belong to clusters of different creations.

    Tablet servers alone may differ: while a catalog is being rebuilt, some are not handed to its masters yet, and their
    tablets can be recovered all the same."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CHECK_S
    while len(nodes) > 1:
        views = await _views(messenger, nodes)
        of = {
            view.cluster_created_us: address
            for address, view in views.items()
            if view.cluster_created_us and not view.hearsay
        }
        if len(of) > 1 and any(_is_master(view) for view in views.values()):
            told = " and ".join(f"{address} is of that created at {creation_text(us)}" for us, address in of.items())
            raise WrongCluster(f"two clusters have one id: {told}; {NEXT_STEP}")
        unsure = any(view.config is not None and not view.cluster_created_us for view in views.values())
        if not of or not unsure or loop.time() >= deadline:
            return
        await asyncio.sleep(AGAIN_S)


def of_another_cluster(heard: str, address: str, refusal: BaseException | None) -> WrongCluster | None:
    """Return the error of a client that has heard one address, if a hello to another one failed for its cluster."""
    if not isinstance(refusal, WrongCluster):
        return None
    return WrongCluster(f"{heard} and {address} are of different clusters ({refusal}); {NEXT_STEP}")


def _is_master(view: MastersView) -> bool:
    return view.removed or any(node == view.node_id for node, _ in view.members)


async def _views(messenger: Messenger, nodes: Mapping[NodeId, str]) -> dict[str, MastersView]:
    """Return what the nodes say of the masters, by address. One without masters refuses the question."""
    request = encode(MastersRequest())
    calls = [messenger.call(node, MASTERS, [request], deadline_ms=int(CHECK_S * 1000)) for node in nodes]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    views: dict[str, MastersView] = {}
    for address, answer in zip(nodes.values(), answers, strict=True):
        if isinstance(answer, BaseException):
            continue
        try:
            views[address] = decode(answer.body[0], MastersView)
        except (StelaeError, IndexError):
            continue
    return views
