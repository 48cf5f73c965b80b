"""Histories of registers: possible ones pass, known-bad ones are refused."""

from __future__ import annotations

from stelae.sim.history import ClientAction
from stelae_chaos.operations import FINAL_CLIENT, ChaosOutcome, RegisterCall
from stelae_chaos.register_check import check_registers, last_reads
from tests.unit.chaos.histories import REFUSED, UNKNOWN, at, read, write


def keys(*calls: RegisterCall) -> list[str]:
    return [finding.key for finding in check_registers(calls)]


def test_a_read_between_two_writes_may_see_either() -> None:
    assert keys(write(1, 2, "a"), write(3, 6, "b"), read(4, 5, "a")) == []
    assert keys(write(1, 2, "a"), write(3, 6, "b"), read(4, 5, "b")) == []


def test_a_lost_write_is_refused() -> None:
    assert keys(write(1, 2, "a"), write(3, 4, "b"), read(5, 6, "a")) == ["key 7"]
    assert keys(write(1, 2, "a"), read(5, 6, None)) == ["key 7"]


def test_a_stale_read_is_refused() -> None:
    assert keys(write(1, 2, "a"), write(3, 8, "b"), read(4, 5, "b"), read(6, 7, "a")) == ["key 7"]


def test_a_value_that_was_never_written_is_refused() -> None:
    assert keys(write(1, 2, "a"), read(3, 4, "z")) == ["key 7"]


def test_a_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    unknown = write(1, 2, "b", UNKNOWN)
    assert keys(unknown, write(3, 4, "a"), read(5, 6, "a")) == []
    assert keys(unknown, write(3, 4, "a"), read(5, 6, "b")) == []
    assert keys(unknown, write(3, 4, "a"), read(5, 6, "b"), read(7, 8, "a")) == ["key 7"]


def test_a_refused_write_must_have_no_effect() -> None:
    refused = write(1, 2, "b", REFUSED)
    assert keys(refused, read(3, 4, None)) == []
    assert keys(refused, read(3, 4, "b")) == ["key 7"]


def test_an_insert_is_refused_only_if_the_row_exists() -> None:
    common = at(3, 4, 30, ChaosOutcome.DONE, "ALREADY_PRESENT")
    insert = RegisterCall(action=ClientAction.INSERT, key=7, value="b", **common)
    assert keys(write(1, 2, "a"), insert, read(5, 6, "a")) == []
    assert keys(insert) == ["key 7"]


def test_a_read_without_an_answer_says_nothing() -> None:
    unanswered = RegisterCall(action=ClientAction.READ, key=7, **at(3, 4, 30, ChaosOutcome.UNKNOWN, "UNAVAILABLE"))
    assert keys(write(1, 2, "a"), unanswered) == []


def test_a_finding_names_the_key_and_the_operations_with_their_times() -> None:
    (finding,) = check_registers([write(1, 2, "a"), read(5, 6, None)])
    assert finding.key == "key 7"
    assert finding.operations == ("0/10 upsert 'a' at 1.000-2.000 s: ok", "0/50 read None at 5.000-6.000 s: ok")


def test_the_last_read_covers_every_key_that_was_used_and_every_row_that_was_found() -> None:
    calls = last_reads([write(1, 2, "a")], {9: "x"}, 5_000_000, 6_000_000)
    assert [(call.client, call.key, call.value) for call in calls] == [(FINAL_CLIENT, 7, None), (FINAL_CLIENT, 9, "x")]
    assert [finding.key for finding in check_registers([write(1, 2, "a"), *calls])] == ["key 7", "key 9"]
