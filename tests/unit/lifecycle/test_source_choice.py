"""Which source a copy asks next."""

from __future__ import annotations

from stelae.lifecycle.source_choice import SourceChoice
from stelae.spi.ids import NodeId
from stelae.spi.members import Member

A, B, C = (Member(node_id=NodeId(letter * 32), address=f"{letter}:1") for letter in "abc")


def test_sources_that_do_not_serve_are_passed_over_in_order_and_again() -> None:
    choice = SourceChoice((A, B, C))
    assert choice.stays and not choice.asked
    assert [choice.next() for _ in range(5)] == [A, B, C, A, B]
    assert choice.asked and not choice.stays


def test_after_an_interruption_the_same_source_is_asked_once_more() -> None:
    choice = SourceChoice((A, B))
    assert choice.next() is A
    choice.interrupted()
    assert choice.stays and choice.next() is A
    assert not choice.stays and choice.next() is B


def test_a_source_with_damaged_bytes_is_not_asked_again() -> None:
    choice = SourceChoice((A, B, C))
    assert choice.next() is A
    choice.damaged(A.node_id)
    assert {choice.next(), choice.next(), choice.next()} == {B, C}
    choice.damaged(B.node_id)
    assert [choice.next(), choice.next()] == [C, C]
    choice.damaged(C.node_id)
    assert choice.next() is None
