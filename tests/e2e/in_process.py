"""Commands in the test's own process, for where an interpreter of their own would cost more than what they do."""

from __future__ import annotations

from typing import NamedTuple

from typer.testing import CliRunner

from stelae.cli.kit.errors import exit_code
from stelae.cli.main import build_app
from stelae.spi.errors import StelaeError


class Done(NamedTuple):
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


def stelae(*words: str) -> Done:
    """Run a command as ``stelae WORDS`` would, its last words on an error included."""
    done = CliRunner().invoke(build_app(words[0]), [*words])
    if isinstance(done.exception, StelaeError):
        return Done(exit_code(done.exception), done.stdout, f"{done.stderr}error: {done.exception}\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)
