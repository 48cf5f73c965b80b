"""Followers: whom a leader reports as unhealthy, and from when on."""

from __future__ import annotations

from stelae.server.tserver.follower_health import FollowerHealth
from stelae.spi.consensus_events import PeerAlive
from stelae.spi.ids import NodeId, TabletId

T, U = TabletId("t"), TabletId("u")
B, C = [NodeId(letter * 32) for letter in "bc"]
LIMIT_US = 1_000_000


def heard(peer: NodeId, at_us: int, term: int = 1) -> PeerAlive:
    return PeerAlive(peer, term, at_us)


def test_a_member_is_unhealthy_when_it_was_not_heard_for_longer_than_allowed() -> None:
    followers = FollowerHealth(unhealthy_ms=1000)
    assert followers.leads(T, 1, [B, C], [heard(B, 0), heard(C, 0)], 0) == ()
    assert followers.leads(T, 1, [B, C], [heard(B, 900_000), heard(C, 0)], LIMIT_US) == (), "at the limit it is well"
    assert followers.leads(T, 1, [B, C], [heard(B, 900_000), heard(C, 0)], LIMIT_US + 1) == (C,)
    assert followers.leads(T, 1, [B, C], [heard(B, 900_000), heard(C, LIMIT_US)], LIMIT_US + 2) == (), "it is back"


def test_one_that_answers_with_an_exception_is_not_heard() -> None:
    """A failed replica, or none at all, is an exception in the acknowledgement: it is missing among the living."""
    followers = FollowerHealth(unhealthy_ms=1000)
    followers.leads(T, 1, [B, C], [heard(B, 0), heard(C, 0)], 0)
    assert followers.leads(T, 1, [B, C], [heard(B, 2 * LIMIT_US)], 2 * LIMIT_US) == (C,)


def test_a_new_leader_gives_everybody_the_whole_time() -> None:
    followers = FollowerHealth(unhealthy_ms=1000)
    followers.leads(T, 1, [B], [], 0)
    assert followers.leads(T, 1, [B], [], 5 * LIMIT_US) == (B,)
    assert followers.leads(T, 2, [B], [], 5 * LIMIT_US) == ()
    assert followers.leads(T, 2, [B], [], 7 * LIMIT_US) == (B,)


def test_who_joins_has_as_long_as_everybody_else_and_who_left_is_not_told() -> None:
    followers = FollowerHealth(unhealthy_ms=1000)
    followers.leads(T, 1, [B], [], 0)
    assert followers.leads(T, 1, [C], [], 5 * LIMIT_US) == ()
    assert followers.leads(T, 1, [C], [], 7 * LIMIT_US) == (C,)


def test_a_tablet_that_is_not_led_any_more_is_forgotten() -> None:
    followers = FollowerHealth(unhealthy_ms=1000)
    followers.leads(T, 1, [B], [], 0)
    followers.leads(U, 1, [B], [], 0)
    followers.keep({U})
    assert followers.leads(T, 1, [B], [], 9 * LIMIT_US) == (), "as a new one"
    assert followers.leads(U, 1, [B], [], 9 * LIMIT_US) == (B,)
