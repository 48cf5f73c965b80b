"""A command line that the parser refuses is a failure like any other: with ``--json`` it is one document."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import document, run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tablet", "quarantine", "restore", "--json"), "Missing option '--name'"),
        (("check", "--json", "--timeout-s", "0"), "greater than or equal to 0.1"),
        (("check", "--timeout-s", "soon", "--json"), "valid number"),
        (("recover", "plan", "--json", "--nope"), "--nope"),
        (("recover", "plans", "--json"), "plans"),
        (("recover", "apply", "--json"), "FILE"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_a_document_with_the_code_of_a_bad_request(words: tuple[str, ...], says: str) -> None:
    """It printed nothing on standard output."""
    done = run(*words)
    found = document(done)
    assert done.returncode == 2
    assert found.keys() == {"code", "error"} and found["code"] == "BAD_REQUEST"
    assert says in found["error"] and says in done.stderr


@pytest.mark.parametrize("words", [("check", "--timeout-s", "0"), ("recover", "plans"), ("check", "--help", "--json")])
def test_without_json_and_for_help_there_is_no_document(words: tuple[str, ...]) -> None:
    assert '"code"' not in run(*words).stdout
