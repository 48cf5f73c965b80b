"""Errors across the wire."""

from __future__ import annotations

import orjson
import pytest

from stelae.spi import errors
from stelae.wire import refusals
from stelae.wire.refusals import RemoteError, error_fields, error_of


def there_and_back(error: errors.StelaeError) -> errors.StelaeError:
    return error_of(orjson.loads(orjson.dumps(error_fields(error))))


@pytest.mark.parametrize(
    "kind",
    [
        errors.Overloaded,
        errors.Unavailable,
        errors.CallerError,
        errors.PayloadMismatch,
        refusals.UnknownKind,
        refusals.StaleRecipient,
    ],
)
def test_an_error_that_callers_act_on_arrives_as_its_own_class(kind: type[errors.StelaeError]) -> None:
    came = there_and_back(kind("what happened"))
    assert type(came) is kind
    assert str(came) == "what happened"


def test_not_leader_carries_whom_to_ask() -> None:
    came = there_and_back(errors.NotLeader("c" * 32, "stepping down"))
    assert isinstance(came, errors.NotLeader)
    assert (came.leader, came.reason) == ("c" * 32, "stepping down")
    nobody = there_and_back(errors.NotLeader())
    assert isinstance(nobody, errors.NotLeader)
    assert nobody.leader is None


def test_sizes_and_floors_arrive_with_their_errors() -> None:
    large = there_and_back(errors.TooLarge("entry", 70, 64))
    assert isinstance(large, errors.TooLarge)
    assert (large.size_bytes, large.size_bytes_max) == (70, 64)
    assert str(large) == "entry has 70 bytes; at most 64 are accepted"
    old = there_and_back(errors.TooOld(42))
    assert isinstance(old, errors.TooOld)
    assert old.floor == 42
    assert str(old) == str(errors.TooOld(42))


def test_an_error_that_arrives_without_its_figures_keeps_its_text() -> None:
    """Masters answer a change with its code and its text."""
    large = error_of(
        {"code": "TOO_LARGE", "text": "this change is too large; take it in several steps", "size_bytes": "x"}
    )
    assert isinstance(large, errors.TooLarge) and (large.size_bytes, large.size_bytes_max) == (0, 0)
    assert str(large) == "this change is too large; take it in several steps"


def test_an_error_of_the_other_sides_disk_keeps_its_code() -> None:
    came = there_and_back(errors.Corrupt("bad block", path="wals/x", offset=2**70))
    assert isinstance(came, RemoteError)
    assert came.remote_code == "CORRUPT"
    assert there_and_back(came).remote_code == "CORRUPT"


def test_a_long_story_is_cut_before_it_travels() -> None:
    fields = error_fields(errors.CallerError("x" * 10_000))
    assert len(str(fields["text"])) == refusals.TEXT_LENGTH_MAX


def test_a_text_with_the_bytes_of_a_file_s_name_arrives_although_they_are_no_utf_8() -> None:
    """Encoding it failed, and the caller waited for an answer until its deadline."""
    came = there_and_back(errors.Corrupt("bad block", path="wals/\udcff" + "\udcfe" * 2000, offset=0))
    assert "wals/\\udcff" in str(came)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        {"code": 5},
        {"code": "NOT_LEADER", "leader": 5, "reason": None},
        {"code": "SNAPSHOT_TOO_OLD", "floor": "low"},
        {"code": "TOO_LARGE"},
    ],
)
def test_whatever_a_peer_sends_as_an_error_becomes_one(fields: dict[str, object] | None) -> None:
    assert isinstance(error_of(fields), errors.StelaeError)  # type: ignore[arg-type]
