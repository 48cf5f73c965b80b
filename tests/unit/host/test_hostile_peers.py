"""Messages of every kind from every sort of sender: none raises, and none of a node outside the config is fatal.

Only members reach a replica's core, and nodes that claim a newer committed config than the replica's."""

from __future__ import annotations

import random
from collections import Counter
from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.heartbeats import Beat, BeatAck
from stelae.host.peer_codec import PeerCodec, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Persisted
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import IncarnationId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import encode_config
from stelae_consensus_raft import RaftEngine
from tests.unit.consensus_raft.solo import ME, A, B, C, Solo, log_of, members
from tests.unit.host.test_replica_failure import LOG
from tests.wild import Draw

STRANGER, FORMER = NodeId("f" * 32), C
SENDERS = {"a member": A, "another member": B, "a former member": FORMER, "a stranger": STRANGER, "itself": ME}
RUN = IncarnationId("1" * 16)
MESSAGES = 400


class World:
    """One replica on a real core, and the traffic of its node. What the core wants durable is so at once.

    With ``commit`` 1 the removal of ``FORMER`` is in the log and not committed yet."""

    def __init__(self, role: Role, commit: int = 2) -> None:
        log = log_of(
            1, 1, 2, configs=[members(ME, A, B, FORMER, op_id=OpId(1, 1)), members(ME, A, B, op_id=OpId(1, 2))]
        )
        solo = Solo(log=log, commit=commit, config=members(ME, A, B, FORMER, op_id=OpId(1, 1)))
        if role is Role.LEADER:
            solo.serve()
        self.due: list = []
        turns = MagicMock(now_us=lambda: 1)
        turns.defer.side_effect = turns.defer_last.side_effect = self.due.append
        self.codec = PeerCodec(RaftEngine.message_types)
        self.traffic = PeerTraffic(self.codec, turns, MagicMock(), 200_000, MagicMock())
        ports = MagicMock(turns=turns, heartbeats=self.traffic.heartbeats)
        ports.writer.has_room.return_value = True
        self.replica = Replica(log=LOG, core=solo.core, vote_kinds=RaftEngine.is_vote_request, ports=ports)
        self.replica.executor = MagicMock(stalled=False)
        self.replica.executor.execute.side_effect = self._execute
        self.replica.writes = MagicMock(take_proposals=lambda: None)
        self.replica.flusher = MagicMock(full=False)
        self.replica._retention = self.replica._rows_for_witnesses = MagicMock()
        self.replica.reads = self.replica.transfers = MagicMock()
        self.traffic.add(self.replica)
        self.run()

    def _execute(self, ready) -> None:  # type: ignore[no-untyped-def]
        if ready.fatal is not None:
            self.replica.fatal(ready.fatal)
        elif ready.hard_state is not None or ready.append is not None:
            self.replica.deliver(Persisted(ready.id))
        if ready.beats is not None:
            self.replica.beats_changed(ready.beats)

    def flaws(self) -> Counter[str]:
        """What the metrics say about refused messages."""
        found: Counter[str] = Counter()
        for (name, *amount), _ in self.replica._ports.metrics.count.call_args_list:  # type: ignore[attr-defined]
            if name.startswith("consensus_flaw_"):
                found[name.removeprefix("consensus_flaw_")] += amount[0]
        return found

    def run(self) -> None:
        while self.due:
            self.due.pop(0)()


def _arrive(world: World, draw: Draw, rng: random.Random, sender: NodeId, config: OpId = OpId(1, 2)) -> str:
    """Let one drawn message arrive, whose sender claims to know a committed config; return the outcome."""
    guard = PeerMessageHeader(LOG.tablet_id, 2, OpId(2, 3), config)
    try:
        match int(rng.random() * 4):
            case 0:
                world.traffic.beat_arrived(sender, RUN, [msgspec.msgpack.encode(draw.message(Beat))])
            case 1:
                world.traffic.beat_ack_arrived(sender, RUN, [msgspec.msgpack.encode(draw.message(BeatAck))])
            case _:
                kinds = list(RaftEngine.message_types.values())
                message = draw.message(kinds[int(rng.random() * len(kinds))])
                first = int(rng.random() * 6)
                entries = [
                    Entry(
                        OpId(int(rng.random() * 4), first + n), EntryKind.CONFIG, 5, encode_config(members(ME, FORMER))
                    )
                    for n in range(int(rng.random() * 3))
                ]
                world.traffic.consensus_arrived(sender, RUN, world.codec.encode(guard, message, entries))
    except PeerError:
        return "refused"
    return "taken"


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
@pytest.mark.parametrize("who", SENDERS)
def test_no_message_of_any_sender_raises_and_only_members_move_a_replica(who: str, role: Role) -> None:
    seen: Counter[str] = Counter()
    world = World(role)
    before = world.replica.status
    for seed in range(MESSAGES):
        rng = random.Random(seed)
        if world.replica.failure or world.replica.status.role is not role:
            world = World(role)
        for _ in range(1 + int(rng.random() * 2)):
            term = world.replica.status.term
            draw = Draw(rng, texts=[LOG.tablet_id], numbers=[term, term + 1, 3])
            seen[_arrive(world, draw, rng, SENDERS[who])] += 1
        world.replica._timer_fired()  # Heartbeats are heard when the timer brings a turn.
        world.run()
        assert "raised" not in world.replica.failure
        if not who.endswith("member") or who == "a former member":
            assert world.replica.status == before and not world.replica.failure
    assert seen["taken"] and (seen["refused"] or who in ("a member", "another member", "itself"))


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
@pytest.mark.parametrize("who", ["a former member", "a stranger", "itself"])
def test_a_node_outside_the_config_that_claims_a_newer_one_fails_no_replica(who: str, role: Role) -> None:
    """It is heard, since it may be a member that was added while this replica was away."""
    seen: Counter[str] = Counter()
    for seed in range(MESSAGES):
        world, rng = World(role), random.Random(seed)
        draw = Draw(rng, texts=[LOG.tablet_id], numbers=[world.replica.status.term, 3, 4])
        seen[_arrive(world, draw, rng, SENDERS[who], OpId(9, 9))] += 1
        world.replica._timer_fired()
        world.run()
        assert not world.replica.failure
        refused = world.replica.core.refused
        assert world.flaws() == refused, "each refusal is in the metrics, once"
        seen["refused by the core"] += sum(refused.values())
    assert seen["taken"]
    if role is Role.FOLLOWER:
        assert seen["refused by the core"]


def test_a_wild_message_is_a_peer_error_or_nothing() -> None:
    """What the codec lets through is of the declared types; everything else it refuses as the peer's error."""
    codec, rng = PeerCodec(RaftEngine.message_types), random.Random(5)
    for _ in range(300):
        frames = [bytes(rng.getrandbits(8) for _ in range(int(rng.random() * 60))) for _ in range(2)]
        with pytest.raises(StelaeError):
            codec.decode(frames)
