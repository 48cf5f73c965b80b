"""Loss, delay, repetition, reordering and partitions between live processes: rules for the wire's fault seam."""

import random
from dataclasses import dataclass

from stelae.spi.ids import NodeId
from stelae.wire.faults import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """What happens to the messages of one peer and direction; chances are from 0 to 1. Delays are drawn evenly; a
    reordered message is held back while its successors pass."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ms: int = 20
    delay_ms_min: int = 0
    delay_ms_max: int = 0


class Faults:
    """Rules per peer and direction; ``None`` stands for peers without a rule of their own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rules: dict[tuple[NodeId | None, Direction], FaultRule] = {}

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        return bool(self.rules)

    def partition(self, peer: NodeId | None, *, inbound: bool = True, outbound: bool = True) -> None:
        """Cut ``peer`` off, both ways or one way."""
        for direction, cut in zip(Direction, (inbound, outbound), strict=True):
            if cut:
                self.rules[(peer, direction)] = FaultRule(drop=1.0)

    def heal(self, peer: NodeId | None) -> None:
        """Remove the rules of one peer (``None``: those for everybody else)."""
        for direction in Direction:
            self.rules.pop((peer, direction), None)

    def judge(self, peer: NodeId, direction: Direction) -> tuple[int, ...]:
        """Return the delay in ms of each copy that is to be delivered; empty means lost."""
        rule = self.rules.get((peer, direction)) or self.rules.get((None, direction))
        if rule is None:
            return (0,)
        if self._rng.random() < rule.drop:
            return ()
        delay_ms, spread_ms = rule.delay_ms_min, rule.delay_ms_max - rule.delay_ms_min
        if spread_ms > 0:
            delay_ms += int(self._rng.random() * (spread_ms + 1))
        if self._rng.random() < rule.reorder:
            delay_ms += rule.reorder_ms
        return (delay_ms,) * (2 if self._rng.random() < rule.duplicate else 1)
