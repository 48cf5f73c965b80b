"""Runs a trace: a text file of commands to a Raft cluster, each followed by its outcome.

A trace is a specification that people read and review as a diff. Its format (``scenarios`` lists which
trace shows what, ``rewrite`` records the outcomes anew)::

    # a comment
    campaign 1
    ----
    1 ready 1: send 2 VoteRequest(term=1 ...)

    stabilize
    ----
    ...

Commands (times in ms, nodes by number):

    cluster VOTERS [learners=N] [entries=N] [join=MS] [drift=PPM]
                                a new cluster: N entries per message, MS for a new member to answer, leases
                                with a bound on the drift of clocks; the first command
    quiet COMMAND...            carry a command out and leave out its outcome: only for preparations
    campaign N [hinted]         node N campaigns at once; hinted: as the first leader of a new tablet
    propose N TEXT...           propose one write per word in one step
    read N [COUNT]              ask for a read index, COUNT times in one step
    apply N INDEX               the store of node N has applied no more than the entries up to INDEX; the driver of N
                                answers the reads that it has confirmed up to there. Without it, answers are not shown
    transfer N [TO]             ask node N to hand leadership over
    step-down N                 tell node N to give up leadership
    join N                      node N runs, with an empty log and no config
    witness N LEADER            node N runs without rows, from the commit index and the committed config of LEADER on
    rows N                      node N, which has no rows, restarts with all of them
    add N NODE [TYPE]           ask node N to add a member, as PRE_VOTER unless another type is given
    remove N NODE [ID]          ask node N to remove a member; ID is the compare-and-set id
    role N NODE TYPE            ask node N to change the type of a member
    abort N                     ask node N to abort the change that is in progress
    recover N EPOCH             make node N the only voter, in a recovery epoch
    stand-down N NODE EPOCH     node N leaves the tablet to NODE, which is recovered next
    removed N NODE              node N hears that the committed config of NODE does not list it
    config N                    the members in the config in force of node N
    deliver [from=N] [to=N]     deliver what is on its way now, not what that causes
    stabilize [from=N] [to=N]   deliver until nothing is on its way
    drop [from=N] [to=N]        lose what is on its way
    delay [from=N] [to=N]       set aside what is on its way, until it arrives
    arrive                      what was set aside is on its way again, even over a link that is cut
    hold N | release N          keep Readies of N from becoming durable, or let them
    persist N                   make the oldest held Ready durable
    fail N                      the disk of N fails: held Readies are lost
    crash N [K]                 stop N, after K durable effects of its oldest held Ready
    start N                     start N from what was durable
    collect N INDEX             the log of N is let go up to an index
    install N M                 N, which is down, gets the log of M
    refused N PEER REASON       N hears that a peer refused a heartbeat: "unknown" (it does not host the tablet),
                                "term" (its term is 0: a new replica) or "failed"
    force N NODE...             an operator rewrites the config of N, which is down: these nodes are its voters
    unreachable N PEER          N hears that the link to a peer is down
    isolate N... | heal         cut or mend links
    advance MS                  time passes: heartbeats and deadlines, and messages arrive at once
    wait MS                     time passes without heartbeats, and nothing arrives
    suspend MS                  all nodes are suspended for a time, and then see what time it is
    status                      one line per node
    peers N                     what node N, the leader, knows of its peers
    log N                       the log of node N"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stelae.spi.consensus import PeerProgress, Ready
from stelae.spi.consensus_events import BeatException, Campaign, PeerUnreachable, Removed, StepDown
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry
from stelae.spi.members import ChangeRole, Member, MemberType, RemoveServer, TabletConfig
from stelae.spi.recovery_epoch import first_term
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_nodes import ClusterNode, InFlightMessage, node_name
from stelae.testing.conformance.consensus_recovery import recover, stand_down
from stelae.testing.conformance.consensus_witnesses import has_rows, join_witness
from stelae_consensus_raft import RaftEngine

SEPARATOR = "----"

SETTINGS = {"entries": "append_entries_max", "join": "member_join_timeout_ms", "drift": "clock_drift_ppm_max"}
"""The settings of the engine that ``cluster`` can change, by their names in a trace."""


def traces() -> list[Path]:
    """Every trace of the repository."""
    return sorted(Path(__file__).parent.glob("*.trace"))


def rewritten(text: str) -> str:
    """Return a trace with its outcomes as they are now; commands and comments stay."""
    trace, blocks = Trace(), []
    for comments, command in _commands(text):
        outcome = trace.run(command)
        blocks.append("\n".join([*comments, command, SEPARATOR, *outcome]).rstrip() + "\n")
    return "\n".join(blocks)


def _commands(text: str) -> Iterator[tuple[list[str], str]]:
    comments: list[str] = []
    in_outcome = False
    for line in text.splitlines():
        if not line.strip():
            in_outcome = False
        elif in_outcome:
            continue
        elif line.startswith("#"):
            comments.append(line)
        elif line.strip() == SEPARATOR:
            in_outcome = True
        else:
            yield comments, line.strip()
            comments = []


class Trace:
    """One cluster under the commands of a trace."""

    def __init__(self) -> None:
        self.cluster = ConsensusCluster(RaftEngine, RaftEngine.Config(), 1)
        self._delayed: list[InFlightMessage] = []
        self._shown: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._answered: set[int] = set()

    def run(self, command: str) -> list[str]:
        """Carry out one command and return the lines of its outcome."""
        name, *words = command.split()
        handler: Callable[..., list[str] | None] = getattr(self, "do_" + name.replace("-", "_"))
        lines = handler(*words) or []
        return [*lines, *self._new_readies(), *self._new_answers()]

    def _new_readies(self) -> Iterator[str]:
        for node in self.cluster.nodes.values():
            seen = self._shown.get(node.number, 0)
            self._shown[node.number] = len(node.readies)
            for ready in node.readies[seen:]:
                yield f"{node.number} ready {ready.id}: {'; '.join(_effects(ready))}"

    def _new_answers(self) -> Iterator[str]:
        """The reads that a driver answers now: they are confirmed, and the store has applied what they must see."""
        for number, applied in self._applied.items():
            for read in (read for ready in self.cluster.nodes[number].readies for read in ready.reads_ready):
                if read.index <= applied and read.token not in self._answered:
                    self._answered.add(read.token)
                    yield f"{number} answers #{read.token}"

    # -- commands --------------------------------------------------------------------------------

    def do_cluster(self, voters: str, *words: str) -> None:
        options = {name: int(value) for name, value in (word.split("=") for word in words)}
        kinds = [MemberType.NON_VOTER] * options.get("learners", 0)
        settings = {SETTINGS[name]: value for name, value in options.items() if name != "learners"}
        config = RaftEngine.Config(**settings)
        self.cluster = ConsensusCluster(RaftEngine, config, int(voters), member_types=kinds)
        self.cluster.fatal_expected = True
        self._delayed.clear()

    def do_quiet(self, *command: str) -> None:
        self.run(" ".join(command))

    def do_campaign(self, number: str, hinted: str | None = None) -> None:
        self.cluster.step(int(number), Campaign(hinted=hinted == "hinted"))

    def do_propose(self, number: str, *words: str) -> None:
        self.cluster.propose(int(number), *(word.encode() for word in words))

    def do_read(self, number: str, count: str = "1") -> None:
        self.cluster.read_together(int(number), int(count))

    def do_apply(self, number: str, index: str) -> None:
        self._applied[int(number)] = int(index)

    def do_transfer(self, number: str, to: str | None = None) -> None:
        self.cluster.transfer(int(number), int(to) if to else None)

    def do_join(self, number: str) -> None:
        self.cluster.join(int(number))

    def do_witness(self, number: str, leader: str) -> None:
        join_witness(self.cluster, int(number), int(leader))

    def do_rows(self, number: str) -> None:
        has_rows(self.cluster, int(number))

    def do_add(self, number: str, added: str, member_type: str = "PRE_VOTER") -> None:
        self.cluster.add(int(number), int(added), MemberType(member_type))

    def do_remove(self, number: str, removed: str, config_id: str | None = None) -> None:
        seen = None if config_id is None else OpId(*(int(part) for part in config_id.split(".")))
        self.cluster.change(int(number), RemoveServer(node_id=node_name(int(removed))), seen)

    def do_role(self, number: str, changed: str, member_type: str) -> None:
        change = ChangeRole(node_id=node_name(int(changed)), member_type=MemberType(member_type))
        self.cluster.change(int(number), change)

    def do_abort(self, number: str) -> None:
        self.cluster.abort(int(number))

    def do_recover(self, number: str, epoch: str) -> None:
        self.cluster.safety.recovered(int(epoch), self.cluster.nodes[int(number)].status.last.index)
        recover(self.cluster, int(number), first_term(int(epoch), 0))

    def do_stand_down(self, number: str, survivor: str, epoch: str) -> None:
        stand_down(self.cluster, int(number), int(survivor), first_term(int(epoch), 0))

    def do_removed(self, number: str, teller: str) -> None:
        self.cluster.step(int(number), Removed(self.cluster.nodes[int(teller)].status.committed_config.op_id))

    def do_config(self, number: str) -> list[str]:
        config = self.cluster.nodes[int(number)].status.config
        return [f"{config.op_id}: {' '.join(f'{_node(m.node_id)}:{m.member_type}' for m in config.members)}"]

    def do_step_down(self, number: str) -> None:
        self.cluster.step(int(number), StepDown())

    def do_deliver(self, *words: str) -> None:
        wanted = _filter(words)
        for packet in [p for p in self.cluster.network if wanted(p)]:
            self.cluster.network.remove(packet)
            self.cluster.deliver(packet)

    def do_stabilize(self, *words: str) -> None:
        self.cluster.deliver_all(_filter(words))

    def do_drop(self, *words: str) -> list[str]:
        return [f"lost {self.cluster.drop(_filter(words))}"]

    def do_delay(self, *words: str) -> list[str]:
        wanted = _filter(words)
        delayed = [packet for packet in self.cluster.network if wanted(packet)]
        self._delayed += delayed
        self.cluster.drop(wanted)
        return [f"set aside {len(delayed)}"]

    def do_arrive(self) -> None:
        self.cluster.network.extend(self._delayed)
        self._delayed.clear()

    def do_hold(self, number: str) -> None:
        self.cluster.nodes[int(number)].holds = True

    def do_release(self, number: str) -> None:
        node = self.cluster.nodes[int(number)]
        node.holds = False
        while node.pending:
            self.cluster.persist(node.number)

    def do_persist(self, number: str) -> None:
        self.cluster.persist(int(number))

    def do_fail(self, number: str) -> None:
        self.cluster.fail_persist(int(number))

    def do_crash(self, number: str, effects: str | None = None) -> None:
        if effects is not None:
            self.cluster.persist(int(number), partly=int(effects))
        self.cluster.crash(int(number))

    def do_start(self, number: str) -> list[str]:
        self.cluster.start(int(number))
        return [_status(self.cluster.nodes[int(number)])]

    def do_collect(self, number: str, index: str) -> None:
        self.cluster.collect(int(number), int(index))

    def do_install(self, number: str, source: str) -> None:
        self.cluster.install(int(number), int(source))

    def do_unreachable(self, number: str, peer: str) -> None:
        self.cluster.step(int(number), PeerUnreachable(node_name(int(peer))))

    def do_refused(self, number: str, peer: str, reason: str) -> None:
        self.cluster.step(int(number), BeatException(node_name(int(peer)), 0, reason))

    def do_force(self, number: str, *voters: str) -> None:
        disk = self.cluster.nodes[int(number)].disk
        members = (Member(node_id=node_name(int(voter)), address=f"node-{voter}:1") for voter in voters)
        disk.config = TabletConfig(op_id=disk.last, members=tuple(members))

    def do_peers(self, number: str) -> list[str]:
        return [_peer(peer) for peer in self.cluster.nodes[int(number)].status.peers]

    def do_isolate(self, *numbers: str) -> None:
        self.cluster.isolate(*(int(number) for number in numbers))

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_advance(self, duration_ms: str) -> None:
        self.cluster.advance(int(duration_ms) * 1000)

    def do_wait(self, duration_ms: str) -> None:
        self.cluster.advance(int(duration_ms) * 1000, beats=False, deliver=False)

    def do_suspend(self, duration_ms: str) -> None:
        self.cluster.now_us += int(duration_ms) * 1000
        for number, node in self.cluster.nodes.items():
            if node.core is not None:
                self.cluster.tick(number)

    def do_status(self) -> list[str]:
        return [_status(node) for node in self.cluster.nodes.values()]

    def do_log(self, number: str) -> list[str]:
        return [_entry(entry) for entry in self.cluster.nodes[int(number)].log]


def _filter(words: tuple[str, ...]) -> Callable[[InFlightMessage], bool]:
    wanted = dict(word.split("=") for word in words)
    sender, to = int(wanted.get("from", 0)), int(wanted.get("to", 0))
    return lambda packet: sender in (0, packet.sender) and to in (0, packet.to)


# -- how things look -------------------------------------------------------------------------------


def _status(node: ClusterNode) -> str:
    if node.core is None:
        return f"{node.number} {'FATAL' if node.fatal else 'down'}"
    status = node.status
    leader = _node(status.leader) if status.leader else "none"
    return (
        f"{node.number} {status.role} term {status.term} leader {leader} last {status.last} "
        f"durable {status.durable_index} commit {status.commit}"
        f"{' serving' if status.serving else ''}"
    )


def _peer(peer: PeerProgress) -> str:
    return f"{_node(peer.node_id)} {peer.state} match {peer.match_index} next {peer.next_index}"


def _effects(ready: Ready) -> Iterator[str]:
    if ready.fatal is not None:
        yield f"FATAL {ready.fatal.reason}"
    if ready.hard_state is not None:
        voted_for = ready.hard_state.voted_for
        yield f"term {ready.hard_state.term} vote {_node(voted_for) if voted_for else 'none'}"
    if ready.append is not None:
        entries = " ".join(_entry(entry) for entry in ready.append.entries)
        replaced = ready.append.replace_from
        yield f"append {entries}" if replaced is None else f"replace from {replaced} {entries}"
    for sent in ready.at_once:
        yield f"send {_node(sent.to)} {_message(sent.message)}"
    for wanted in ready.ranges:
        ends = f"{wanted.prev}..{wanted.last}"
        yield f"send {_node(wanted.to)} {_message(wanted.message)} with {ends}"
    for sent in ready.after_persist:
        yield f"then send {_node(sent.to)} {_message(sent.message)}"
    yield from _answers(ready)


def _answers(ready: Ready) -> Iterator[str]:
    for accepted in ready.accepted:
        yield f"accept #{accepted.token} at {accepted.op_id}"
    for rejection in ready.rejections:
        detail = _short(rejection.detail)
        yield f"reject #{rejection.token} {rejection.reason}{': ' if detail else ''}{detail}"
    for changed in ready.config_changes:
        yield f"change #{changed.token} committed as config {changed.config.op_id}"
    for token in ready.stood_down:
        yield f"then #{token} stands down"
    for token in ready.aborted:
        yield f"abort #{token} done"
    if ready.commit is not None:
        yield f"commit {ready.commit}"
    if ready.committed_config is not None:
        yield f"config {ready.committed_config.op_id} committed"
    for token in ready.handed_over:
        yield f"handed over #{token}"
    for read in ready.reads_ready:
        yield f"read #{read.token} at {read.index}"
    if ready.beats is not None:
        peers = " ".join(_node(peer) for peer in ready.beats.peers) or "nobody"
        yield f"beat {peers} in term {ready.beats.term}"
    for request in ready.copy_requests:
        to = _node(request.peer)
        yield f"copy to {to} from {request.first_index}" if request.hosted else f"new replica on {to}"


def _short(text: str) -> str:
    """Replace each node id in a text by the number of the node."""
    return re.sub(r"\b0{20}[0-9a-f]{12}\b", lambda found: _node(NodeId(found[0])), text)


def _node(node: NodeId) -> str:
    return str(int(node, 16))


def _entry(entry: Entry) -> str:
    body = f"({entry.body.decode()})" if entry.kind.name == "WRITE" else ""
    return f"{entry.op_id}:{entry.kind.name}{body}"


def _message(message: msgspec.Struct) -> str:
    """Name and fields; those at their default say nothing and are left out."""
    fields = []
    for info in msgspec.structs.fields(message):
        value = getattr(message, info.name)
        if value == info.default or info.name == "attempt":
            continue
        fields.append(f"{info.name}={OpId(*value) if isinstance(value, tuple) else value}")
    return f"{type(message).__name__}({' '.join(fields)})"
