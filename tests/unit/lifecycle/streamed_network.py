"""Sources and target of the streaming transport below a ``CopyNode``, in virtual time. Counts the served bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from stelae.spi.copy import CopyNetwork, FetchChunk, KeepAlive, SessionKey, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk, CopyOffer, CopyOutcome, CopyPlan
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import Member
from stelae.testing.conformance.copy_harness import NoMetrics
from stelae.testing.copy_world import ManualClock, MemoryContent
from stelae_copy_streaming.config import StreamingConfig
from stelae_copy_streaming.source import StreamingSource
from stelae_copy_streaming.target import StreamingTarget
from tests.unit.lifecycle.copy_network import FakeNetwork, Served
from tests.unit.lifecycle.disk_node import NODE

CHUNK_BYTES = 64


class StreamedNetwork(FakeNetwork):
    """Real sources, a real target, and a network between them that answers at once.

    Args:
        what: the snapshot of every source.
        nodes: the sources.
        window: how many chunks the target asks for at a time."""

    def __init__(self, what: Served, nodes: Sequence[NodeId], window: int) -> None:
        super().__init__(dict.fromkeys(nodes, what))
        self.what = what
        self.clock = ManualClock()
        self.config = StreamingConfig(chunk_bytes=CHUNK_BYTES, chunks_in_flight=window)
        self.started = count(1)
        self.served: Counter[tuple[str, int]] = Counter()  #: How often each byte of each item was served.
        self.by_node: Counter[NodeId] = Counter()  #: Bytes.
        self.gone: set[NodeId] = set()
        #: Called with the number of chunks that were served before, and the source. It may change anything.
        self.on_request: Callable[[int, NodeId], None] = lambda chunks, node: None
        self.chunks = 0
        for node in nodes:
            self.start(node)
        self.restart_target()

    def start(self, node: NodeId) -> None:
        """Start a source anew: it knows no session of its last run."""
        source = StreamingSource(self.config, self.clock, NoMetrics(), f"run-{next(self.started)}")
        self.streams = {**getattr(self, "streams", {}), node: source}

    def restart_target(self) -> None:
        """Start the target anew, with all its slots free."""
        self.slots = 1
        self.target = StreamingTarget(self.config, self.clock, NoMetrics())

    # -- CopySources -----------------------------------------------------------------------------

    def begin(
        self, source: Member, tablet_id: TabletId, done: Callable[[CopyOffer | Exception], None], **_form: Any
    ) -> None:
        node = source.node_id
        self.asked.append(node)
        if node in self.gone:
            done(Unavailable("it is not connected"))
            return
        content = MemoryContent(self.what.contents, self.what.snapshot)
        found = self.streams[node].begin(SessionKey(tablet_id, NODE, "form"), lambda: content)
        done(CopyOffer(source=node, session=found.id, ttl_ms=found.ttl_ms, snapshot=found.snapshot))

    def keep_alive(self, offer: CopyOffer, done: Callable[[Exception | None], None]) -> None:
        found = self.answer(offer.source, KeepAlive(offer.session))
        done(found if isinstance(found, StelaeError) else None)

    def end(self, offer: CopyOffer) -> None:
        self.streams[offer.source].end(NODE, offer.session)

    def network(self) -> CopyNetwork:
        return _Way(self)

    def answer(self, node: NodeId, request: SourceRequest) -> SourceAnswer | StelaeError:
        """Answer a request of the target, and count the bytes of chunks."""
        if isinstance(request, FetchChunk):
            self.on_request(self.chunks, node)
        if node in self.gone:
            return Unavailable("it is not connected")
        try:
            found = self.streams[node].answer(NODE, request)
        except StelaeError as error:
            return error
        if isinstance(request, FetchChunk) and isinstance(found, Chunk):
            self.chunks += 1
            self.by_node[node] += len(found.data)
            self.served.update((request.item, request.offset + at) for at in range(len(found.data)))
        return found

    # -- CopyTarget ------------------------------------------------------------------------------

    def run(self, plan: CopyPlan, *, have: Mapping[str, str], sink: Any, network: Any, control: Any) -> CopyOutcome:
        return self.target.run(plan, have=have, sink=sink, network=network, control=control)


class _Way:
    """The way to the sources for one run. Answers arrive at the next wait."""

    def __init__(self, sources: StreamedNetwork) -> None:
        self._sources = sources
        self._answers: list[tuple[int, SourceAnswer | StelaeError]] = []

    def ask(self, ticket: int, source: NodeId, request: SourceRequest) -> None:
        self._answers.append((ticket, self._sources.answer(source, request)))

    def wait(self, timeout_us: int) -> Sequence[tuple[int, SourceAnswer | StelaeError]]:
        found, self._answers = self._answers, []
        self._sources.clock.now_us += 1_000 if found else timeout_us
        return found
