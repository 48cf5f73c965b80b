"""Malformed traffic of every sort: nothing dies, everything is refused and counted."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from stelae.testing.wire_fuzz import FuzzCase, load_corpus, meet, play, storm
from stelae.wire.settings import Lane
from tests.at_length import times
from tests.unit.wire.worlds import CLUSTER, Metrics, messenger, run

CORPUS = load_corpus(Path(__file__).parent / "corpus")


def serving() -> tuple[Metrics, str]:
    """A node with a service of each sort, one of which has a bug."""
    node, metrics = messenger(1)
    node.serve("echo", lambda request: request.reply(request.body))
    node.serve("bulk.echo", lambda request: request.reply(request.body), lane=Lane.BULK)
    node.serve("buggy", lambda request: request.reply([request.body[7]]))
    node.on_message("note", lambda message: None)
    return metrics, node.bind("127.0.0.1:0")


def test_the_corpus_has_not_lost_its_cases() -> None:
    assert len(CORPUS) >= 70
    assert len({case.name for case in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_a_told_case_is_refused_and_counted_and_the_node_lives(case: FuzzCase) -> None:
    async def main() -> None:
        metrics, address = serving()
        loud = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: loud.append(told))
        rng = random.Random(case.name)
        who = await asyncio.to_thread(meet, address, rng, CLUSTER)
        await asyncio.to_thread(play, case, address, rng, who)
        assert await asyncio.to_thread(meet, address, rng, CLUSTER) == who
        if case.expect != "PONG":
            assert metrics[f"wire_refused_{case.expect.lower()}"] >= 1
            assert metrics["wire_refused_total"] >= 1
        assert loud == []

    run(main)


@pytest.mark.fuzzer
@pytest.mark.parametrize("seed", range(times(6)))
def test_a_storm_of_mutations_to_every_service_leaves_the_node_serving(seed: int) -> None:
    async def main() -> None:
        metrics, address = serving()
        loud = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: loud.append(told))
        rng = random.Random(seed)
        who = await asyncio.to_thread(meet, address, rng, CLUSTER)
        small = [case for case in CORPUS if not case.name.startswith(("flood", "frame"))]
        kinds = ("echo", "bulk.echo", "buggy", "note")
        await asyncio.to_thread(lambda: storm(small, address, rng=rng, node=who, kinds=kinds, messages=600))
        assert metrics["wire_refused_total"] > 100
        assert metrics["wire_refused_malformed"] > 10
        assert metrics["wire_handlers_failed"] > 0
        assert loud == []
        client, _ = messenger(99)
        node_id = await client.connect(address)
        assert (await client.call(node_id, "echo", [b"x"], deadline_ms=5000)).body == [b"x"]

    run(main)
