"""A source that several threads use at a time: each snapshot is released once, and nothing is read after that."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

from stelae.spi.copy import CopyContent, FetchChunk, KeepAlive, SessionKey
from stelae.spi.copy_plan import CopySessionEnded
from stelae.spi.errors import Overloaded
from stelae.spi.ids import TabletId
from stelae.testing.conformance.copy_harness import CopyHarness
from stelae.testing.copy_world import TARGET, MemoryContent
from stelae_copy_streaming import StreamingTransport


def test_threads_that_begin_fetch_end_and_expire_release_every_snapshot_once() -> None:
    harness = CopyHarness(StreamingTransport)
    world = harness.world()
    source = harness.source(world, source_slots=3, session_ttl_ms=100)
    made: list[MemoryContent] = []
    failures: list[BaseException] = []

    def take() -> CopyContent:
        made.append(MemoryContent({"rows/a": bytes(1000)}))
        return made[-1]

    def use(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(400):
                key = SessionKey(TabletId(f"t{rng.randrange(5)}"), TARGET, "form")
                with suppress(Overloaded, CopySessionEnded):
                    session = source.begin(key, take).id
                    source.answer(TARGET, FetchChunk(session, "rows/a", rng.randrange(1000), 100))
                    source.answer(TARGET, KeepAlive(session))
                    if rng.random() < 0.3:
                        source.end(TARGET, session)
                    elif rng.random() < 0.3:
                        world.clock.now_us += 60_000
                        source.expire()
                    elif rng.random() < 0.1:
                        source.end_all(key.tablet_id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source.end_all()
    assert not failures
    assert len(made) > 10
    assert [content.released for content in made] == [1] * len(made)
    assert not source.sessions()
