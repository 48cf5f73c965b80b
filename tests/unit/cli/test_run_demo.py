"""What a demo leaves behind: nothing, unless something was wrong."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

import pytest

from stelae.cli import run_demo
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import Unavailable

OPTIONS = run_demo.DemoOptions(
    input_file=None, key=(), keep=None, election_timeout_ms=1000, engines={"wal": "segmented"}, as_json=False
)


class Rehearsal:
    """Stands in for a demo in a folder: writes what nodes log, and ends as it is told to."""

    def __init__(self, ending: int | BaseException) -> None:
        self.ending = ending
        self.folder = Path()

    def __call__(self, directory: Path, *_: object) -> int:
        self.folder = directory
        (directory / "tserver-1").mkdir()
        (directory / "tserver-1" / "node.log").write_text("what happened\n")
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


def rehearse(ending: int | BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    """Run a demo without ``--keep`` that ends so."""
    rehearsal = Rehearsal(ending)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run_demo, "_run_in", rehearsal)
    if isinstance(ending, KeyboardInterrupt):
        assert run_demo.run_demo(OPTIONS) == EXIT_INTERRUPTED
    elif isinstance(ending, Exception):
        with pytest.raises(type(ending)):
            run_demo.run_demo(OPTIONS)
    else:
        assert run_demo.run_demo(OPTIONS) == ending
    return rehearsal


def test_a_demo_that_holds_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse(EXIT_OK, tmp_path, monkeypatch)
    assert not [*tmp_path.iterdir()]


def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse(KeyboardInterrupt(), tmp_path, monkeypatch)
    assert not [*tmp_path.iterdir()]


def test_a_demo_that_gets_sigterm_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder stayed, and with ``--keep`` all nodes ran on."""

    def ended(directory: Path, *_: object) -> int:
        (directory / "tserver-1").mkdir()
        (directory / "tserver-1" / "node.log").touch()
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("SIGTERM was ignored")

    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("SIGTERM ends the process at once"))
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(run_demo, "_run_in", ended)
        assert run_demo.run_demo(OPTIONS) == EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not [*tmp_path.iterdir()]


def test_a_kept_demo_that_is_taken_down_is_told_as_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--json`` there was no document."""
    ClusterWithMasters.create(tmp_path / "c", ClusterOptions(), formatted=lambda node, node_id: None)
    assert run_demo.take_down(tmp_path / "c", as_json=True) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["stopped"] == []


@pytest.mark.parametrize(
    "ending", [EXIT_FAILED, Unavailable("no leader accepted the write in time"), AssertionError("a defect")]
)
def test_one_that_does_not_keeps_what_its_nodes_logged(
    ending: int | Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal = rehearse(ending, tmp_path, monkeypatch)
    assert (rehearsal.folder / "tserver-1" / "node.log").exists()
    assert str(rehearsal.folder) in capsys.readouterr().err
