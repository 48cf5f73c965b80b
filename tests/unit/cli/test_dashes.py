"""Negative numbers as keys on a command line."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from stelae.cli.kit.connection import Target
from stelae.cli.main import build_app
from stelae_transfer.commands import run_scan


@pytest.mark.parametrize(
    ("words", "key", "table"),
    [
        (["-5"], ["-5"], ""),
        (["-5", "--table", "t"], ["-5"], "t"),
        (["--table", "t", "-5"], ["-5"], "t"),
        (["--table", "-5", "-6"], ["-6"], "-5"),
        (["--table=-5", "-6"], ["-6"], "-5"),
        (["Oslo", "-5", "--json", "-0.5"], ["Oslo", "-5", "-0.5"], ""),
        (["-.5", "5", "-inf"], ["-.5", "5", "-inf"], ""),
        (["--", "-5", "--table"], ["-5", "--table"], ""),
        (["-5", "--", "-x"], ["-5", "-x"], ""),
        (["5"], ["5"], ""),
    ],
    ids=" ".join,
)
def test_a_negative_number_is_a_key_wherever_it_stands(
    words: list[str], key: list[str], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], str]] = []

    def run_get(target: Target, words: list[str], *_: object, **__: object) -> int:
        seen.append((words, target.table))
        return 0

    monkeypatch.setattr(run_scan, "run_get", run_get)
    done = CliRunner().invoke(build_app("get"), ["get", *words])
    assert done.exit_code == 0, done.output
    assert seen == [(key, table)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-x"], "No such option: -x"),
        (["-5", "--tabel", "t"], "No such option: --tabel"),
        (["--table"], "'--table' requires an argument"),
        (["-5", "--table"], "'--table' requires an argument"),
        ([], "Missing argument"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_as_ever(words: list[str], says: str) -> None:
    done = CliRunner().invoke(build_app("get"), ["get", *words])
    assert done.exit_code == 2 and says in done.output


def test_no_option_looks_like_a_negative_number() -> None:
    command = get_command(build_app("get")).commands["get"]  # type: ignore[attr-defined]
    assert not [name for param in command.params for name in param.opts if name[1:2].isdigit()]


def test_the_help_teaches_keys_of_several_columns_and_what_begins_with_a_dash() -> None:
    shown = " ".join(CliRunner().invoke(build_app("get"), ["get", "--help"]).output.split())
    assert "stelae get Lisbon 2026-06-02" in shown
    assert "one argument for each key column" in shown and "stelae get -5" in shown
    assert "Text that begins with a dash needs `--` before the first value" in shown
