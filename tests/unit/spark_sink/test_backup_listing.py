"""``stelae-spark list`` where there is no backup."""

from __future__ import annotations

import json

import pytest

from stelae_spark_sink.backup import functions, run_command


@pytest.fixture(autouse=True)
def an_empty_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "_session", lambda name: None)
    monkeypatch.setattr(functions, "list_backups", lambda session, folder, table: [])


@pytest.mark.parametrize(("table", "told"), [(None, "no backup in /b;"), ("t", "no backup of table 't' in /b;")])
def test_an_empty_list_says_what_to_check(table: str | None, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run_list_command("/b", table, as_json=False) == 0
    shown = capsys.readouterr()
    assert shown.out == "" and told in shown.err and "check the path" in shown.err


def test_an_empty_list_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run_list_command("/b", None, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"backups": []}
