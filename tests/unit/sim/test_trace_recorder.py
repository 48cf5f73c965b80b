"""The recorder turns the facts of a run and the messages on its network into records."""

from __future__ import annotations

from stelae.host.peer_codec import PeerCodec, PeerMessageHeader
from stelae.host.peer_traffic import CONSENSUS
from stelae.sim.node_change import NodeChange
from stelae.sim.node_links import FramesInFlight
from stelae.sim.trace.lifelines import LifelineChange, lifelines
from stelae.sim.trace.recorder import TraceRecorder
from stelae.sim.trace.records import LinksChanged, MessageSent, NodeChanged, ReplicaConfigChanged, TermSaved, TraceKind
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, Role, Status
from stelae.spi.ids import ZERO, IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae_consensus_raft.messages import MESSAGE_TYPES, AppendEntries, AppendRefusal, AppendReply, VoteRequest
from tests.unit.sim.rig import NAMES, entry
from tests.unit.sim.trace_samples import changed, role

CODEC = PeerCodec(MESSAGE_TYPES)
HEADER = PeerMessageHeader(TabletId("t"), 1, ZERO, ZERO)


class RecorderRig:
    """A recorder with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_us = 0
        self.recorder = TraceRecorder(lambda: self.now_us, CODEC, NAMES)
        self.nodes = [ObservedNode(position) for position in range(3)]

    def send(self, message: object, *entries: object) -> MessageSent:
        """Send a consensus message from node 0 to node 1 and return its record."""
        frames = CODEC.encode(HEADER, message, entries)  # type: ignore[arg-type]
        body = tuple(bytes(frame) for frame in frames)
        in_flight = FramesInFlight(NAMES[0], IncarnationId("0" * 16), CONSENSUS, body, 0)
        self.flight = self.recorder.sent((0, 1), "0>1.consensus", in_flight)
        record = self.recorder.records[-1]
        assert isinstance(record, MessageSent)
        return record


def config_of(index: int, *names: NodeId) -> TabletConfig:
    members = tuple(Member(node_id=name, address="") for name in names)
    return TabletConfig(op_id=OpId(1, index), members=members)


def status_of(config: TabletConfig, committed: TabletConfig) -> Status:
    return Status(
        node_id=NAMES[0],
        role=Role.FOLLOWER,
        term=1,
        voted_for=None,
        leader=None,
        last=ZERO,
        durable_index=0,
        commit=0,
        applied=0,
        serving=False,
        config=config,
        committed_config=committed,
    )


def test_a_message_has_the_times_of_its_arrivals_and_losses() -> None:
    rig = RecorderRig()
    record = rig.send(VoteRequest(term=3, last=OpId(2, 15), pre=True))
    rig.now_us = 70
    rig.flight.arrived()
    rig.now_us = 90
    rig.flight.lost()
    assert (record.at_us, record.arrived_us, record.lost_us) == (0, [70], [90])
    assert (record.kind, record.name) == (TraceKind.VOTE, "raft.vote")
    assert record.fields == {"term": 3, "last": (2, 15), "pre": True}


def test_appends_are_sorted_by_whether_they_carry_entries_and_are_accepted() -> None:
    rig = RecorderRig()
    append = AppendEntries(term=1, prev=OpId(1, 4), commit=4)
    full = rig.send(append, entry(1, 5), entry(1, 6))
    assert (full.kind, full.first, full.last) == (TraceKind.APPEND, OpId(1, 5), OpId(1, 6))
    assert rig.send(append).kind is TraceKind.PROBE
    assert rig.send(AppendReply(term=1, match=6)).kind is TraceKind.REPLY
    assert rig.send(AppendReply(term=1, refusal=AppendRefusal.MISMATCH)).kind is TraceKind.REFUSAL


def test_heartbeats_and_messages_of_clients_have_their_own_kinds() -> None:
    rig = RecorderRig()
    rig.recorder.sent((0, 1), "0>1.beat", FramesInFlight(NAMES[0], IncarnationId("0" * 16), "beat", (), 0))
    rig.recorder.sent((3, 0), "write", None)
    kinds = [record.kind for record in rig.recorder.records if isinstance(record, MessageSent)]
    assert kinds == [TraceKind.HEARTBEAT, TraceKind.CLIENT]


def test_only_a_clock_that_has_jumped_is_recorded_as_corrected() -> None:
    rig = RecorderRig()
    for change in (NodeChange.CLOCK_CORRECTED, NodeChange.CLOCK_JUMPED, NodeChange.CLOCK_CORRECTED):
        rig.recorder.on_node(rig.nodes[1], change)
    changes = [record.change for record in rig.recorder.records if isinstance(record, NodeChanged)]
    assert changes == [NodeChange.CLOCK_JUMPED, NodeChange.CLOCK_CORRECTED]


def test_node_ids_are_recorded_as_positions() -> None:
    rig = RecorderRig()
    rig.recorder.on_hard_state_saved(rig.nodes[2], HardState(4, NAMES[1]))
    rig.recorder.links_changed([(0, 2)], cut=True)
    assert rig.recorder.records == [
        TermSaved(at_us=0, node=2, term=4, voted_for=1),
        LinksChanged(at_us=0, links=((0, 2),), cut=True),
    ]


def test_a_config_is_recorded_for_each_node_and_its_commit_once() -> None:
    rig = RecorderRig()
    first, second = config_of(1, NAMES[0]), config_of(2, NAMES[0], NodeId("f" * 32))
    for node, committed in ((0, first), (1, first), (1, first), (0, second), (1, second)):
        status = status_of(second if committed is second or node == 1 else first, committed)
        rig.recorder.on_status(rig.nodes[node], None, status)
    configs = [record for record in rig.recorder.records if isinstance(record, ReplicaConfigChanged)]
    assert [(record.node, record.op_id.index, record.committed) for record in configs] == [
        (0, 1, True),
        (1, 2, False),
        (0, 2, True),
    ]
    assert [member.node for member in configs[-1].members] == [0, None]


def test_a_paused_node_continues_with_its_role_and_a_killed_one_does_not() -> None:
    records = [role(1, "LEADER", 3), changed(2, NodeChange.PAUSED), changed(3, NodeChange.RESUMED)]
    records += [changed(4, NodeChange.KILLED), changed(5, NodeChange.RESUMED)]
    assert list(lifelines(records)) == [
        LifelineChange(1, 0, "LEADER", 3),
        LifelineChange(2, 0, "PAUSED", 3),
        LifelineChange(3, 0, "LEADER", 3),
        LifelineChange(4, 0, "DOWN", 0),
    ]
