"""The executor answers who asked a replica to stand down once term and vote of that are durable."""

from __future__ import annotations

from stelae.spi.consensus import HardState, Ready
from tests.unit.host.test_executor import PEER, Bench, append, new_entry


class _Bench(Bench):
    def stood_down(self, token: int) -> None:
        self.log.append(f"stood down {token}")


def test_who_asked_a_replica_to_stand_down_is_answered_once_that_is_durable() -> None:
    bench = _Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1))), Ready(id=2, hard_state=HardState(1 << 40, PEER), stood_down=(7,))
    )
    assert "stood down 7" not in bench.log
    bench.disk()
    assert "stood down 7" not in bench.log, "the vote is not saved yet"
    bench.metadata()
    assert bench.log[-1] == "stood down 7"
