"""Loss, delay, repetition, reordering and partitions between live processes: rules for the wire's fault seam.

Rules are set by calls, or read from a file: a JSON list such as ``[{"peer": "0123...", "directions": ["INBOUND"],
"drop": 1.0}]``, looked at when a message enters or leaves, at most every ``rules_file.LOOK_S``. Replace it whole, by
renaming, to change the rules while a node runs. No file, or an empty list: every message passes."""

import random
from dataclasses import dataclass

import msgspec

from stelae.local.chaos.rules_file import RulesFile
from stelae.spi.errors import ConfigError
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


class PeerRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as a file has it, for the messages of one peer, by its uuid; empty: for peers without one of their own."""

    peer: str = ""
    directions: tuple[Direction, ...] = tuple(Direction)
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms_min: int = 0
    delay_ms_max: int = 0


class NetworkFaults:
    """The rules of one node, by a file. Asked on the node's event loop only.

    Args:
        path: the file of rules; it need not exist.
    """

    def __init__(self, path: str, rng: random.Random) -> None:
        self._file = RulesFile(path)
        self._rules = Faults(rng)

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        self._look()
        return self._rules.active

    def judge(self, peer: NodeId, direction: Direction) -> tuple[int, ...]:
        """As ``Faults``."""
        return self._rules.judge(peer, direction)

    def _look(self) -> None:
        """Read the file again if it is another one."""
        if not self._file.due() or not self._file.changed():
            return
        self._rules.rules = {
            (NodeId(found.peer) if found.peer else None, direction): FaultRule(
                drop=found.drop,
                duplicate=found.duplicate,
                reorder=found.reorder,
                delay_ms_min=found.delay_ms_min,
                delay_ms_max=found.delay_ms_max,
            )
            for found in self._file.rules(PeerRule, "the network", self._check)
            for direction in found.directions
        }

    def _check(self, rule: PeerRule) -> None:
        """``ConfigError``: a chance is none, or a delay."""
        chances = (rule.drop, rule.duplicate, rule.reorder)
        if not all(0 <= chance <= 1 for chance in chances) or not 0 <= rule.delay_ms_min <= rule.delay_ms_max:
            fact = f"a rule has the chances {chances} and delays from {rule.delay_ms_min} to {rule.delay_ms_max} ms"
            hint = "chances are from 0 to 1, and delay_ms_min is at most delay_ms_max"
            raise ConfigError(fact, where=self._file.path, hint=hint)
