"""Loses, delays, repeats and reorders messages of a running node, and partitions it from others, by rules. Used by
tests.

Rules are set by calls, or read from a file: a JSON list such as ``[{"peer": "0123...", "directions": ["INBOUND"],
"drop": 1.0}]``. The node checks the file when it sends or receives a message, at most every ``rules_file.LOOK_S``. To
change the rules while the node runs, replace the file by a rename. Without a file, or with an empty list, every message
passes."""

import random
from dataclasses import dataclass

import msgspec

from stelae.local.chaos.rules_file import RulesFile
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId
from stelae.wire.faults import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """The faults of the messages of one peer in one direction. Probabilities are from 0 to 1."""

    drop: float = 0.0  #: Probability that a message is lost.
    duplicate: float = 0.0  #: Probability that a message is delivered twice.
    reorder: float = 0.0  #: Probability that a message is delayed by ``reorder_ms`` so that later ones pass it.
    reorder_ms: int = 20
    delay_ms_min: int = 0  #: Delays are drawn uniformly between the two.
    delay_ms_max: int = 0


class Faults:
    """Rules by peer and direction. The rules of peer ``None`` apply to all peers without rules of their own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rules: dict[tuple[NodeId | None, Direction], FaultRule] = {}

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        return bool(self.rules)

    def partition(self, peer: NodeId | None, *, inbound: bool = True, outbound: bool = True) -> None:
        """Lose all messages of ``peer``, in both directions or in one."""
        for direction, cut in zip(Direction, (inbound, outbound), strict=True):
            if cut:
                self.rules[(peer, direction)] = FaultRule(drop=1.0)

    def heal(self, peer: NodeId | None) -> None:
        """Remove the rules of one peer; ``None``: the rules for all peers without rules of their own."""
        for direction in Direction:
            self.rules.pop((peer, direction), None)

    def judge(self, peer: NodeId, direction: Direction) -> tuple[int, ...]:
        """Return the delay in milliseconds of each copy to deliver; empty: the message is lost."""
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
    """A rule in a file. The other fields are those of ``FaultRule``."""

    peer: str = ""  #: Uuid of the peer; empty: all peers without rules of their own.
    directions: tuple[Direction, ...] = tuple(Direction)
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms_min: int = 0
    delay_ms_max: int = 0


class NetworkFaults:
    """The rules of one node, read from a file. Used on the node's event loop only.

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
        """Return the same as ``Faults.judge``, by the rules of the file."""
        return self._rules.judge(peer, direction)

    def _look(self) -> None:
        """Read the file again if it has changed."""
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
        """Check a rule; ``ConfigError``: a probability or a delay is out of range."""
        chances = (rule.drop, rule.duplicate, rule.reorder)
        if not all(0 <= chance <= 1 for chance in chances) or not 0 <= rule.delay_ms_min <= rule.delay_ms_max:
            delays = f"delays from {rule.delay_ms_min} to {rule.delay_ms_max} ms"
            fact = f"a rule has the probabilities {chances} and {delays}"
            hint = "probabilities are from 0 to 1, and delay_ms_min is at most delay_ms_max"
            raise ConfigError(fact, where=self._file.path, hint=hint)
