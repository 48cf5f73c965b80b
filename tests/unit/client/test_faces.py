"""The two faces of the client are one: the same methods, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from stelae import client
from stelae.client import async_client, feed_methods, sync_client

FACES = [
    (client.Client, client.AsyncClient),
    (client.Table, client.AsyncTable),
    (client.Scan, client.AsyncScan),
    (client.ChangeFeed, client.AsyncChangeFeed),
    (feed_methods.FeedMethods, feed_methods.AsyncFeedMethods),
    (client.Session, client.AsyncSession),
    (client.Replicas, client.AsyncReplicas),
]
OWN: dict[type, set[str]] = {
    client.AsyncClient: {"schema_of"},  # For locations.
    client.AsyncTable: {"partitioning"},
    client.AsyncChangeFeed: {"batches", "put_back"},  # The second is for the synchronous face.
    feed_methods.AsyncFeedMethods: set(),
    client.AsyncReplicas: set(),
    client.AsyncScan: {"batches", "put_back"},  # A synchronous scan is iterated over.
    client.AsyncSession: {
        "try_add",
        "abandon",
        "closed",
        "finish",
    },  # For the synchronous face, ``async with``, and the client.
}


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("plain", "asynchronous"), FACES, ids=lambda cls: cls.__name__)
def test_every_method_of_one_face_is_one_of_the_other_with_the_same_arguments(plain: type, asynchronous: type) -> None:
    mine, theirs = public(plain), public(asynchronous)
    assert set(theirs) - set(mine) <= OWN[asynchronous]
    assert set(mine) - set(theirs) <= {"name"}  # There a plain attribute.
    for name, method in mine.items():
        if inspect.isfunction(method):
            assert parameters(method) == parameters(theirs[name]), name


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(p.name, p.kind, p.default) for p in found]


def test_connecting_takes_the_same_arguments() -> None:
    assert parameters(sync_client.connect) == parameters(async_client.connect_async)


def test_only_documented_names_are_public() -> None:
    assert set(client.__all__) == {name for name, value in vars(client).items() if name in client.__all__}
    for name in client.__all__:
        assert getattr(client, name).__doc__, name
