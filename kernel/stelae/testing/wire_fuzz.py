"""Malformed traffic against a listening node: a corpus of written cases, mutations of them, floods.

A case is a JSON file: ``story``, ``hello`` (whether the attacker has introduced itself properly
before), ``frames``, ``times`` (how often the message is sent), ``ping`` (whether a ping follows),
and ``expect``: the code of the refusal that must come back, or ``PONG``. A frame is a text in which
``{node}``, ``{node_run}``, ``{cluster}``, ``{me}`` and ``{my_run}`` stand for the ids; or
``{"hex": ...}``; or ``{"repeat": text, "times": n}``; or ``{"join": [...]}`` of these.
``{"frames": n}`` means ``n`` small frames.

It speaks through plain blocking sockets, so it runs in a thread beside the node, or against another
process. Nothing of it depends on which services the node has: pass their kinds.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import zmq

from stelae.wire.envelope import Envelope, Identity, MessageKind, encode_envelope

ANSWER_TIMEOUT_MS: Final = 5000
"""How long an answer that must come is waited for; a node that never answers has failed."""

_decoder: Final = msgspec.json.Decoder(Envelope)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCase:
    """One written case of the corpus."""

    name: str
    story: str
    hello: bool
    frames: tuple[Any, ...]
    times: int
    ping: bool
    expect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedNode:
    """Who lives at the address, as its hello says."""

    node_id: str
    incarnation_id: str
    cluster_id: str


def load_corpus(directory: Path) -> list[FuzzCase]:
    """Return the cases of a directory, by name."""
    cases = []
    for path in sorted(directory.glob("*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        cases.append(
            FuzzCase(
                name=path.stem,
                story=told["story"],
                hello=told.get("hello", True),
                frames=tuple(told["frames"]),
                times=told.get("times", 1),
                ping=told.get("ping", False),
                expect=told["expect"],
            )
        )
    return cases


class Attacker:
    """One hostile connection. ``address`` is ``host:port``; use it as a context manager."""

    def __init__(self, address: str, identity: Identity, *, lane: int = 0) -> None:
        self._identity = identity
        self._lane = lane
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, ANSWER_TIMEOUT_MS)
        self._socket.setsockopt(zmq.SNDTIMEO, ANSWER_TIMEOUT_MS)
        self._socket.connect(f"tcp://{address}")

    def __enter__(self) -> Attacker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close(linger=0)
        self._context.term()

    def hello(self, **changes: Any) -> Envelope:
        """Say hello, properly but for ``changes`` to the header; return the answer's envelope."""
        fields = {"lane": self._lane, "window_bytes": 1 << 20}
        self.send([self.header([(MessageKind.HELLO, 1, 0, "", fields, [])], recipient="", **changes)])
        return self.answer()

    def header(self, messages: list[tuple[object, ...]], *, recipient: str, **changes: Any) -> bytes:
        """Return a header of the attacker's own, with changed or (``None``) missing keys."""
        written = encode_envelope(
            self._identity, recipient=recipient, incarnation="", timestamp=1, credit=0, messages=messages
        )
        changed = {**json.loads(written), **changes}
        return json.dumps({k: v for k, v in changed.items() if v is not None}).encode()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message as it is."""
        self._socket.send_multipart(list(frames))

    def answer(self) -> Envelope:
        """Wait for one message of the node.

        Raises:
            AssertionError: none came, so the node no longer answers.
        """
        try:
            return _decoder.decode(self._socket.recv_multipart()[0])
        except zmq.Again:
            raise AssertionError("the node does not answer any more") from None

    def ping(self, node: FuzzedNode) -> None:
        """Send a proper ping; its answer shows that the node has taken all that was sent before."""
        ping = self.header(
            [(MessageKind.PING, 0, 0, "", None, [])], recipient=node.node_id, recipient_incarnation=node.incarnation_id
        )
        self.send([ping])

    def codes_until(self, expected: str) -> set[str]:
        """Collect what ``codes_of`` finds in the answers until ``expected`` is among it."""
        codes: set[str] = set()
        while expected not in codes:
            codes.update(codes_of(self.answer()))
        return codes


def codes_of(envelope: Envelope) -> set[str]:
    """Return the codes of the refusals in a message, and ``MessageKind.PONG`` for the answer to a ping."""
    codes = {
        str((message.fields or {}).get("code"))
        for message in envelope.messages
        if message.kind in (MessageKind.REFUSED, MessageKind.ERROR)
    }
    return codes | {"PONG" for message in envelope.messages if message.kind == MessageKind.PONG}


def identity(rng: random.Random, cluster_id: str) -> Identity:
    """Draw an identity for an attacker."""
    return msgspec.convert(
        {
            "cluster_id": cluster_id,
            "node_id": f"{rng.getrandbits(128):032x}",
            "incarnation_id": f"{rng.getrandbits(64):016x}",
        },
        Identity,
    )


def meet(address: str, rng: random.Random, cluster_id: str) -> FuzzedNode:
    """Say hello as a newcomer: proves that the node is alive, and tells who it is.

    Raises:
        AssertionError: it does not answer, or not with a hello.
    """
    with Attacker(address, identity(rng, cluster_id)) as newcomer:
        answer = newcomer.hello()
    assert answer.messages[0].kind == MessageKind.HELLO, f"no hello but {answer.messages[0]}"
    return FuzzedNode(node_id=answer.sender, incarnation_id=answer.sender_incarnation, cluster_id=answer.cluster_id)


def play(case: FuzzCase, address: str, rng: random.Random, node: FuzzedNode) -> set[str]:
    """Play one case; return the codes of the refusals that came until the expected one did."""
    me = identity(rng, node.cluster_id)
    with Attacker(address, me) as attacker:
        if case.hello:
            attacker.hello()
        frames = render(case, node, me)
        for _ in range(case.times):
            attacker.send(frames)
        if case.ping:
            attacker.ping(node)
        return attacker.codes_until(case.expect)


def render(case: FuzzCase, node: FuzzedNode, me: Identity) -> list[bytes]:
    """Return the frames of a case, with the ids filled in."""
    ids = {
        "{node}": node.node_id,
        "{node_run}": node.incarnation_id,
        "{cluster}": node.cluster_id,
        "{me}": me.node_id,
        "{my_run}": me.incarnation_id,
    }
    frames: list[bytes] = []
    for told in case.frames:
        if isinstance(told, Mapping) and "frames" in told:
            frames.extend([b"x"] * int(told["frames"]))
        else:
            frames.append(_frame(told, ids))
    return frames


def storm(
    cases: Sequence[FuzzCase],
    address: str,
    *,
    rng: random.Random,
    node: FuzzedNode,
    kinds: Iterable[str],
    messages: int,
) -> None:
    """Send mutated messages: of the corpus, and of well-formed ones to every kind, body garbled.

    Kinds and lanes take turns, fifty messages each; after each turn a newcomer's hello proves that the node is alive.
    """
    lanes = [(kind, lane) for kind in kinds for lane in (0, 1)] or [("nobody.serves", 0)]
    sent = 0
    for kind, lane in itertools.cycle(lanes):
        if sent >= messages:
            return
        me = identity(rng, node.cluster_id)
        with Attacker(address, me, lane=lane) as attacker:
            attacker.hello()
            for _ in range(50):
                if rng.random() < 0.5:
                    case = cases[int(rng.random() * len(cases))]
                    frames = mutate(rng, render(case, node, me))
                else:
                    frames = list(_addressed(rng, attacker, node, kind))
                attacker.send(frames)
                sent += 1
            attacker.ping(node)
            attacker.codes_until("PONG")
        meet(address, rng, node.cluster_id)


def mutate(rng: random.Random, frames: Sequence[bytes]) -> list[bytes]:
    """Return the frames with one to three random injuries."""
    hurt = [frame[:65536] for frame in frames[:64]] or [b""]
    for _ in range(1 + int(rng.random() * 3)):
        position = int(rng.random() * len(hurt))
        frame = hurt[position]
        place = int(rng.random() * (len(frame) + 1))
        match int(rng.random() * 6):
            case 0:
                hurt[position] = frame[:place]
            case 1:
                hurt[position] = frame[:place] + bytes([rng.getrandbits(8)]) + frame[place + 1 :]
            case 2:
                hurt[position] = frame[:place] + _noise(rng, 40) + frame[place:]
            case 3:
                hurt.insert(position, _noise(rng, 200))
            case 4:
                hurt.append(frame)
            case _:
                hurt = hurt[:position] + hurt[position + 1 :] or [b""]
    return hurt


def _addressed(rng: random.Random, attacker: Attacker, node: FuzzedNode, kind: str) -> Iterator[bytes]:
    """A message that passes the envelope's checks and carries nonsense to a service."""
    body = [_noise(rng, 300) for _ in range(int(rng.random() * 4))]
    fields: Mapping[str, object] | None = None
    if rng.random() < 0.5:
        fields = {"tablet": _noise(rng, 8).hex(), "term": rng.getrandbits(40), "": None}
    request_id = rng.getrandbits(16) if rng.random() < 0.7 else 0
    message = (kind, request_id, 1000, "", fields, [len(frame) for frame in body])
    yield attacker.header([message], recipient=node.node_id, recipient_incarnation=node.incarnation_id)
    yield b"".join(body)


def _noise(rng: random.Random, bytes_max: int) -> bytes:
    return bytes(rng.getrandbits(8) for _ in range(int(rng.random() * bytes_max)))


def _frame(told: Any, ids: Mapping[str, str]) -> bytes:
    if isinstance(told, Mapping):
        if "hex" in told:
            return bytes.fromhex(told["hex"])
        if "join" in told:
            return b"".join(_frame(part, ids) for part in told["join"])
        return bytes(str(told["repeat"]), "utf-8") * int(told["times"])
    text = str(told)
    for name, value in ids.items():
        text = text.replace(name, value)
    return text.encode("utf-8")
