"""The service of tablets: which replica it finds for a request, and what it does not read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.read_faults import ReadFaults
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import (
    SCAN,
    SPLIT_BYTES_MIN,
    Checksum,
    ChecksumRequest,
    NoSuchTablet,
    SplitKeysRequest,
)
from stelae.server.tserver.tablet_service import TabletService, replica_of
from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import OpId, TabletId


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "none"), (2, "t0, t1"), (5, "t0, t1, t2, t3, t4"), (7, "t0, t1, t2, t3, t4, and 2 more")]
)
def test_the_refusal_of_an_unknown_tablet_names_a_few_tablets_of_the_node(count: int, shown: str) -> None:
    """It named all of them, in each answer to each client whose tablet had moved."""
    replicas = {TabletId(f"t{number}"): None for number in reversed(range(count))}
    node: Any = SimpleNamespace(replicas=replicas, failed_tablets={}, tablets=None)
    with pytest.raises(NoSuchTablet) as caught:
        replica_of(node, TabletId("x"))
    assert str(caught.value) == f"no tablet 'x' on this node; it has: {shown}"


@pytest.mark.parametrize(
    ("handler", "asked"),
    [
        (TabletService._checksum, ChecksumRequest(TabletId("t"), None)),
        (TabletService._split_keys, SplitKeysRequest(TabletId("t"), SPLIT_BYTES_MIN, None, None)),
    ],
    ids=["checksum", "split keys"],
)
def test_a_read_that_is_given_up_before_its_turn_is_skipped(handler: Any, asked: Any) -> None:
    works: list[tuple[Any, Any]] = []
    store = SimpleNamespace(checksum=None, split_keys=None, schema=SimpleNamespace(version=1))
    applier = SimpleNamespace(store=store, applied=1, timestamp=10)
    node: Any = SimpleNamespace(
        metrics=SimpleNamespace(histogram=lambda _name: None),
        replicas={TabletId("t"): SimpleNamespace(applier=applier, log_only=False)},
        scans=SimpleNamespace(run=lambda _key, work, done: works.append((work, done))),
    )
    load: Any = None
    request: Any = SimpleNamespace(body=[encode(asked)], kind="", open=True)
    handler(TabletService(node, load), request)
    request.open = False
    ((work, done),) = works
    done(work())


@pytest.mark.parametrize("altered", [False, True])
def test_a_checksum_names_its_schema_version_and_is_refused_if_the_table_is_altered_meanwhile(altered: bool) -> None:
    store = SimpleNamespace(schema=SimpleNamespace(version=3))

    def checksum(at: int) -> str:
        store.schema = SimpleNamespace(version=4 if altered else 3)
        return f"at {at}"

    store.checksum = checksum
    applier = SimpleNamespace(store=store, applied=OpId(1, 1), timestamp=10)
    replica = SimpleNamespace(
        applier=applier, log_only=False, read_faults=ReadFaults(pytest.fail, pytest.fail), failure="", state="RUNNING"
    )
    node: Any = SimpleNamespace(
        metrics=SimpleNamespace(histogram=lambda _name: None),
        replicas={TabletId("t"): replica},
        scans=SimpleNamespace(run=run_now),
    )
    load: Any = None
    answers: list[Any] = []
    request: Any = SimpleNamespace(
        body=[encode(ChecksumRequest(TabletId("t"), None))], open=True, reply=answers.extend, refuse=answers.append
    )
    TabletService(node, load)._checksum(request)
    (answer,) = answers
    if altered:
        assert isinstance(answer, Unavailable) and "altered while its rows were read" in str(answer)
    else:
        assert decode(answer, Checksum) == Checksum("at 10", OpId(1, 1), 10, 3)


def run_now(_key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    try:
        found = work()
    except StelaeError as error:
        found = error
    done(found)


@pytest.mark.parametrize("depth", [1, 600])
@pytest.mark.parametrize(
    "predicate",
    [{"type": "Compare", "column": 3, "op": "="}, {"type": "In", "column": 3}, {"type": "Prefix", "column": 3}],
    ids=["compare", "in", "prefix"],
)
def test_a_predicate_with_a_nested_value_is_refused_before_its_time_is_chosen(
    predicate: dict[str, Any], depth: int
) -> None:
    """One that can just be decoded could not be encoded again: that raised in a turn of the replica, which failed."""
    node: Any = SimpleNamespace(metrics=SimpleNamespace(histogram=lambda _name: None), replicas={}, failed_tablets={})
    load: Any = None
    for nested in (b"\x91" * depth + b"\xc0", b"\x81\xa1a" * depth + b"\xc0"):
        value = msgspec.Raw(b"\x91" + nested) if predicate["type"] == "In" else msgspec.Raw(nested)
        field = {"In": "values", "Prefix": "prefix"}.get(predicate["type"], "value")
        body = msgspec.msgpack.encode(["t", {"predicates": [{**predicate, field: value}]}])
        request: Any = SimpleNamespace(body=[body], kind=SCAN)
        with pytest.raises(CallerError, match="predicate of column 3 has a list or a map"):
            TabletService(node, load)._scan(request)
