"""Asks the other masters whom they take for the masters of the cluster, and whether it has begun.

Two things can differ: what a master's node.toml lists now, and the members with which its system tablet began, which
are what counts in an election and which no edit of the file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stelae.host.node import Node
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import FOUNDING, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.spi.consensus import Member
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import NodeId

ANSWER_MS = 2_000


class MasterComparison:
    """Compares this master with the others."""

    def __init__(self, node: Node, members: Sequence[Member]) -> None:
        self._node = node
        self._mine = {member.node_id: member.address for member in members}

    async def answers(self) -> dict[str, BootstrapAnswer | StelaeError]:
        """What each of the other masters says, by its address."""
        others = [node_id for node_id in self._mine if node_id != self._node.node_id]
        found = await asyncio.gather(*map(self._ask, others))
        return {self._mine[node_id]: answer for node_id, answer in zip(others, found, strict=True)}

    def differences(self, answers: Mapping[str, BootstrapAnswer | StelaeError]) -> list[str]:
        """Where masters, this one among them, go by other members than those of its list."""
        replica = self._node.replicas.get(SYSTEM_TABLET)
        own = [] if replica is None else [member.node_id for member in replica.status.config.members]
        found = [self._began_with(self._node.address, own), *map(self._difference, answers.items())]
        return [difference for difference in found if difference]

    async def _ask(self, master: NodeId) -> BootstrapAnswer | StelaeError:
        call = self._node.messenger.call(master, FOUNDING, [encode(BootstrapRequest())], deadline_ms=ANSWER_MS)
        try:
            (body,) = (await call).body
            return decode(body, BootstrapAnswer)
        except StelaeError as error:
            return error
        except ValueError:
            return PeerError("its answer is not one frame")

    def _difference(self, said: tuple[str, BootstrapAnswer | StelaeError]) -> str:
        where, answer = said
        if isinstance(answer, StelaeError):
            return ""
        listed = dict(answer.masters)
        if set(listed) != set(self._mine):  # By uuid: one may reach them under other names than another.
            named = f"master {where} names the masters {_text(listed)}, this one {_text(self._mine)}"
            return f"{named}: make [masters] alike in every node.toml"
        return self._began_with(where, answer.members)

    def _began_with(self, where: str, began: Collection[NodeId]) -> str:
        """What is against a master whose system tablet began with these members, if it has one."""
        if not began or set(began) == set(self._mine):
            return ""
        named = ", ".join(f"{self._mine.get(node_id, 'another')} ({node_id[:8]})" for node_id in sorted(began))
        return (
            f"master {where} was first started with the masters {named}, and its [masters] lists others now: "
            "unless it has served a cluster, format it anew under the uuid that it has"
        )


def silent(answers: Mapping[str, BootstrapAnswer | StelaeError]) -> list[str]:
    """Which masters do not answer, and that they have to."""
    text = "all masters have to run when a cluster first starts"
    found = ((where, error) for where, error in answers.items() if isinstance(error, StelaeError))
    return [f"master {where} does not answer ({error}): {text}" for where, error in found]


def stages(answers: Mapping[str, BootstrapAnswer | StelaeError], stage: BootstrapStage) -> list[str]:
    """Addresses of the masters that are that far."""
    return [where for where, said in answers.items() if isinstance(said, BootstrapAnswer) and said.stage is stage]


def _text(listed: Mapping[NodeId, str]) -> str:
    return ", ".join(f"{address} ({node_id[:8]})" for node_id, address in sorted(listed.items())) or "none"
