"""Asks the other masters whom they take for the masters of the cluster, and whether it has begun.

Two things can differ: what a master's node.toml lists now, and the members with which its system tablet began. The
members are what counts in an election, and no edit of the file changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.server.master.driver.ports import MasterNode, PendingCall
from stelae.spi.errors import PeerError, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.members import Member

ANSWER_MS = 2_000

MasterAnswers: TypeAlias = Mapping[str, BootstrapAnswer | StelaeError]
"""The answer of each of the other masters, by its address."""


class MasterComparison:
    """Compares this master with the others."""

    def __init__(self, node: MasterNode, members: Sequence[Member]) -> None:
        self._node = node
        self._listed = {member.node_id: member.address for member in members}

    def ask(self, done: Callable[[MasterAnswers], None]) -> None:
        """Ask every other master; ``done`` once all have answered or failed to, and never within this call."""
        others = [node_id for node_id in self._listed if node_id != self._node.node_id]
        answers: dict[NodeId, BootstrapAnswer | StelaeError] = {}

        def answered(master: NodeId, call: PendingCall) -> None:
            answers[master] = answer_of(call)
            if len(answers) == len(others):
                done({self._listed[node_id]: answers[node_id] for node_id in others})

        for master in others:
            call = self._node.messenger.call(master, BOOTSTRAP, [encode(BootstrapRequest())], deadline_ms=ANSWER_MS)
            call.add_done_callback(partial(answered, master))
        if not others:
            turns = self._node.turns
            turns.call_at(turns.now_us(), lambda: done({}))

    def differences(self, answers: MasterAnswers) -> list[str]:
        """Where masters, this one among them, have other members than those of its list."""
        replica = self._node.replicas.get(SYSTEM_TABLET)
        own = [] if replica is None else [member.node_id for member in replica.status.config.members]
        found = [self._began_with(self._node.address, own)]
        found += [self._difference(address, answer) for address, answer in answers.items()]
        return [difference for difference in found if difference]

    def _difference(self, address: str, answer: BootstrapAnswer | StelaeError) -> str:
        if isinstance(answer, StelaeError):
            return ""
        listed = dict(answer.masters)
        if set(listed) != set(self._listed):  # By uuid: one may reach them under other names than another.
            named = f"master {address} names the masters {_text(listed)}, this one {_text(self._listed)}"
            return f"{named}: make [masters] alike in every node.toml"
        return self._began_with(address, answer.members)

    def _began_with(self, address: str, members: Collection[NodeId]) -> str:
        """What is against a master whose system tablet began with these members, if it has one."""
        if not members or set(members) == set(self._listed):
            return ""
        named = ", ".join(f"{self._listed.get(node_id, 'another')} ({node_id[:8]})" for node_id in sorted(members))
        return (
            f"master {address} was first started with the masters {named}, and its [masters] lists others now: "
            "unless it has served a cluster, format it anew under the uuid that it has"
        )


def silent(answers: MasterAnswers) -> list[str]:
    """Which masters do not answer, and that they have to."""
    text = "all masters have to run when a cluster first starts"
    found = ((address, error) for address, error in answers.items() if isinstance(error, StelaeError))
    return [f"master {address} does not answer ({error}): {text}" for address, error in found]


def stages(answers: MasterAnswers, stage: BootstrapStage) -> list[str]:
    """Addresses of the masters that have come to a stage."""
    return [
        address for address, answer in answers.items() if isinstance(answer, BootstrapAnswer) and answer.stage is stage
    ]


def voter_according_to(answers: MasterAnswers, node_id: NodeId) -> list[str]:
    """Addresses of the masters whose cluster has begun, and by whose config a node has a vote, or had one."""
    found = ((address, answer) for address, answer in answers.items() if isinstance(answer, BootstrapAnswer))
    return [address for address, answer in found if answer.stage is BootstrapStage.BEGUN and _had_vote(answer, node_id)]


def _had_vote(answer: BootstrapAnswer, node_id: NodeId) -> bool:
    return node_id in answer.former_voters or (node_id in answer.members and node_id not in answer.joining)


def masters_by(answer: BootstrapAnswer | StelaeError) -> str:
    """Return the members of a master's system tablet, by their addresses in its file or else by their uuids."""
    if isinstance(answer, StelaeError):
        return "unknown"
    addresses = dict(answer.masters)
    return ", ".join(addresses.get(node_id, node_id) for node_id in answer.members)


def answer_of(call: PendingCall) -> BootstrapAnswer | StelaeError:
    """Return the answer to a ``BootstrapRequest``, or why there is none."""
    if call.cancelled():
        return Unavailable("the call was given up")
    failure = call.exception()
    if failure is not None:
        return failure if isinstance(failure, StelaeError) else PeerError(f"{type(failure).__name__}: {failure}")
    try:
        (body,) = call.result().body
        return decode(body, BootstrapAnswer)
    except StelaeError as error:
        return error
    except ValueError:
        return PeerError("its answer is not one frame")


def _text(listed: Mapping[NodeId, str]) -> str:
    return ", ".join(f"{address} ({node_id[:8]})" for node_id, address in sorted(listed.items())) or "none"
