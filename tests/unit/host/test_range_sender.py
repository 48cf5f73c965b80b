"""Ranges to one peer are sent in order, and those that the core has given up are dropped."""

from __future__ import annotations

from stelae.spi.consensus import HardState, Range, Ready
from tests.unit.host.test_executor import PEER, Bench, Note, append, new_entry, op


def test_ranges_to_a_peer_keep_their_order_though_only_the_first_one_must_be_read() -> None:
    bench = Bench(last=op(9))
    bench.run(Ready(id=1, append=append(new_entry(10), new_entry(11))))
    old = Range(PEER, Note("old"), 1, op(3), op(9))
    recent = Range(PEER, Note("recent"), 1, op(9), op(11))
    bench.run(Ready(id=2, ranges=(old, recent)))
    assert not any(line.startswith("send") for line in bench.log)
    bench.reads[0][2]([new_entry(n) for n in range(4, 10)])
    sent = [line for line in bench.log if line.startswith("send")]
    assert sent == ["send old [4, 5, 6, 7, 8, 9]", "send recent [10, 11]"]
    assert bench.events == []


def test_a_range_that_begins_again_replaces_those_that_still_wait_and_are_being_read() -> None:
    bench = Bench(last=op(9))
    first = Range(PEER, Note("first"), 1, op(3), op(5))
    second = Range(PEER, Note("second"), 1, op(5), op(9))
    again = Range(PEER, Note("again"), 1, op(4), op(9))
    bench.run(Ready(id=1, ranges=(first, second)), Ready(id=2, ranges=(again,)))
    assert [(read[0], read[1]) for read in bench.reads] == [(4, 6), (5, 10)]
    bench.reads[0][2]([new_entry(4), new_entry(5)])
    assert not any(line.startswith("send") for line in bench.log)
    bench.reads[1][2]([new_entry(n) for n in range(5, 10)])
    assert [line for line in bench.log if line.startswith("send")] == ["send again [5, 6, 7, 8, 9]"]
    assert bench.events == [] and len(bench.reads) == 2


def test_a_read_goes_on_for_a_core_that_asks_again_from_the_same_entry() -> None:
    """Each repetition began a read of its own and dropped the one before it.

    A log that takes longer to read than the core waits for an answer was never sent, and was read all the time."""
    bench = Bench(last=op(9))
    bench.run(Ready(id=1, ranges=(Range(PEER, Note("first"), 1, op(3), op(9)),)))
    for number in range(2, 6):
        bench.run(Ready(id=number, ranges=(Range(PEER, Note(f"again {number}"), 1, op(3), op(6)),)))
    bench.run(Ready(id=6, ranges=(Range(PEER, Note("next"), 1, op(6), op(9)),)))
    assert [(read[0], read[1]) for read in bench.reads] == [(4, 10)]
    bench.reads[0][2]([new_entry(n) for n in range(4, 10)])
    assert [(read[0], read[1]) for read in bench.reads] == [(4, 10), (7, 10)]
    bench.reads[1][2]([new_entry(n) for n in range(7, 10)])
    sent = [line for line in bench.log if line.startswith("send")]
    assert sent == ["send again 5 [4, 5, 6]", "send next [7, 8, 9]"]
    assert bench.events == []


def test_a_read_of_an_earlier_term_or_from_another_entry_does_not_count_for_a_later_range() -> None:
    bench = Bench(last=op(9))
    entries = [new_entry(n) for n in range(4, 10)]
    bench.run(Ready(id=1, ranges=(Range(PEER, Note("old"), 1, op(3), op(9)),)))
    bench.run(Ready(id=2, ranges=(Range(PEER, Note("elsewhere"), 1, op(4), op(9)),)))
    bench.run(Ready(id=3, ranges=(Range(PEER, Note("back"), 1, op(3), op(9)),)))
    bench.run(Ready(id=4, hard_state=HardState(2)))
    bench.saves[-1][1](None)
    bench.run(Ready(id=5, ranges=(Range(PEER, Note("new"), 2, op(3), op(9)),)))
    assert [(read[0], read[1]) for read in bench.reads] == [(4, 10), (5, 10), (4, 10), (4, 10)]
    for _, _, arrived in bench.reads[:3]:
        arrived(entries)
    assert not any(line.startswith("send") for line in bench.log)
    bench.reads[3][2](entries)
    assert [line for line in bench.log if line.startswith("send")] == ["send new [4, 5, 6, 7, 8, 9]"]
