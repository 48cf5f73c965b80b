"""A pipeline that waits for room in the queue of the log writer."""

from __future__ import annotations

from collections.abc import Callable

from stelae.spi.consensus import Ready
from tests.unit.host.test_executor import Bench, append, new_entry, say


def test_a_pipeline_that_is_stalled_waits_for_room_once() -> None:
    """Each later Ready added a wait of its own, and room then moved the pipeline once for each of them."""
    bench = Bench(queue_bytes_max=70)
    waits: list[Callable[[None], None]] = []
    bench.writer.when_room = waits.append  # type: ignore[method-assign]
    bench.run(Ready(id=1, append=append(new_entry(1))), Ready(id=2, append=append(new_entry(2))))
    bench.run(*(Ready(id=number, at_once=say("later")) for number in range(3, 50)))
    assert bench.executor.stalled and len(waits) == 1
    waits.pop()(None)
    assert bench.executor.stalled and len(waits) == 1, "there is no room yet"
    bench.disk()
    waits.pop()(None)
    assert not bench.executor.stalled and not waits
    assert len([line for line in bench.log if line == "send later"]) == 47
