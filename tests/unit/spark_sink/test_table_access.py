"""How a worker of Spark finds the cluster if all masters of its option were replaced since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stelae.client import Contacts
from stelae.spi.ids import ClusterId
from stelae_spark_sink import table_access
from stelae_spark_sink.contacts_file import read_contacts, write_contacts
from stelae_spark_sink.options import MASTERS, SourceOptions, Use
from stelae_spark_sink.table_access import client_of, contacts_of, forget

OPTIONS = SourceOptions({"masters": "old:1", "table": "t"}, Use.WRITE)
Connects = Callable[[Contacts], list[Contacts | None]]


def known(*addresses: str, cluster: str = "c") -> Contacts:
    return Contacts(cluster_id=ClusterId(cluster), addresses=addresses)


class ConnectedClient:
    """A client that knows these contacts."""

    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts

    def contacts(self) -> Contacts:
        return self._contacts


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> Connects:
    """Returns a function that lets a new worker connect to a cluster, and that notes the contacts it connects by."""

    def connected(present: Contacts) -> list[Contacts | None]:
        used: list[Contacts | None] = []

        def connect(_: Sequence[str], *, contacts: Contacts | None, **_others: object) -> Any:
            used.append(contacts)
            return ConnectedClient(present)

        for name in ("_clients", "_tables", "_stored"):
            monkeypatch.setattr(table_access, name, {})
        monkeypatch.setattr(table_access, "connect", connect)
        return used

    return connected


def test_a_worker_connects_by_what_an_earlier_worker_of_the_host_has_stored(connects: Connects) -> None:
    for present, stored in ((known("a:1"), None), (known("b:1"), known("a:1")), (known("c:1"), known("b:1"))):
        used = connects(present)
        client_of(OPTIONS)
        assert contacts_of(OPTIONS) == present and used == [stored]
        assert read_contacts(OPTIONS[MASTERS]) == present


def test_a_task_connects_by_what_the_driver_has_sent_and_then_by_what_the_host_has_stored(connects: Connects) -> None:
    write_contacts(OPTIONS[MASTERS], known("b:1", "c:1"))
    used = connects(known("d:1"))
    client_of(OPTIONS.found_by(known("a:1", "b:1")))
    assert used == [known("a:1", "b:1", "c:1")]


def test_what_the_host_has_stored_of_another_cluster_is_not_mixed_with_what_the_driver_has_sent(
    connects: Connects,
) -> None:
    write_contacts(OPTIONS[MASTERS], known("b:1", cluster="another"))
    used = connects(known("d:1"))
    client_of(OPTIONS.found_by(known("a:1")))
    assert used == [known("a:1")]


def test_a_worker_without_a_client_has_no_contacts(connects: Connects) -> None:
    connects(known("a:1"))
    assert contacts_of(OPTIONS) is None and read_contacts(OPTIONS[MASTERS]) is None


def test_a_worker_connects_from_the_location_of_its_executor(
    connects: Connects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads from the replicas that are nearest to it."""
    connects(known("a:1"))
    inner, locations = table_access.connect, []

    def connect(*given: Any, location: str, **others: Any) -> Any:
        locations.append(location)
        return inner(*given, **others)

    monkeypatch.setattr(table_access, "connect", connect)
    monkeypatch.setenv(table_access.LOCATION, "/oslo/rack-3")
    client_of(OPTIONS)
    assert locations == ["/oslo/rack-3"]


def test_a_worker_has_a_client_of_its_own_for_each_compression(
    connects: Connects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that writes into the table that it reads with LZ4 has both in one worker."""
    connects(known("a:1"))
    inner, compressions = table_access.connect, []

    def connect(*given: Any, compression: str, **others: Any) -> Any:
        compressions.append(compression)
        return inner(*given, **others)

    monkeypatch.setattr(table_access, "connect", connect)
    reading = SourceOptions({"masters": "old:1", "table": "t", "compression": "LZ4"}, Use.READ)
    clients = [client_of(options) for options in (reading, OPTIONS, reading, OPTIONS)]
    assert compressions == ["lz4", "none"]
    assert clients[0] is clients[2] is not clients[1] is clients[3]
    monkeypatch.setattr(ConnectedClient, "close", lambda _: None, raising=False)
    forget(reading)
    assert contacts_of(reading) is None and contacts_of(OPTIONS) == known("a:1")
