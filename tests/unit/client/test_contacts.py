"""Which of several attempts to connect counts, and that no other connection is left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from stelae.client.connection import Connection
from stelae.client.contacts import Contacts, connect_by
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import ClusterId
from stelae.wire.refusals import WrongCluster

CONTACTS = Contacts(cluster_id=ClusterId("c"), addresses=("a:1", "b:1"))
GIVEN = ("given:1",)


class MadeConnection:
    """A connection to one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False

    def close(self) -> None:
        self.closed = True


Answers = Callable[..., list[MadeConnection]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Returns a function that says how each address answers; it returns the connections that are made.

    An error that is given for the addresses of the user is raised at the second attempt."""

    def answered(**by: StelaeError | None) -> list[MadeConnection]:
        made: list[MadeConnection] = []

        async def connect(addresses: Sequence[str], *, cluster_id: str = "", timeout_s: float) -> MadeConnection:
            await asyncio.sleep(0)
            name = addresses[0].partition(":")[0]
            first = name == "given" and not cluster_id and timeout_s == 1.0
            error = Unavailable("nothing yet") if first else by.get(name, Unavailable(f"{name} is down"))
            if error is not None:
                raise error
            made.append(MadeConnection(name))
            return made[-1]

        monkeypatch.setattr(Connection, "connect", connect)
        return made

    return answered


def connected(contacts: Contacts | None = CONTACTS) -> str:
    made = asyncio.run(connect_by(GIVEN, contacts, 30.0))
    assert isinstance(made, MadeConnection) and not made.closed
    return made.address


def test_a_contact_leads_to_the_cluster_if_no_given_address_answers(answers: Answers) -> None:
    answers(b=None)
    assert connected() == "b"


def test_a_contact_of_another_cluster_does_not_count(answers: Answers) -> None:
    answers(a=WrongCluster("another"), b=None)
    assert connected() == "b"


def test_the_given_addresses_win_and_no_other_connection_is_left(answers: Answers) -> None:
    made = answers(given=None, a=None, b=None)
    assert connected() == "given"
    assert [one.address for one in made if not one.closed] == ["given"] and len(made) == 3


def test_the_refusal_of_the_given_addresses_counts_and_no_connection_is_left(answers: Answers) -> None:
    made = answers(given=WrongCluster("two clusters"), a=None)
    with pytest.raises(WrongCluster, match="two clusters"):
        connected()
    assert all(one.closed for one in made)


def test_the_error_names_the_given_addresses_if_nothing_answers(answers: Answers) -> None:
    answers()
    with pytest.raises(Unavailable, match="given is down"):
        connected()
