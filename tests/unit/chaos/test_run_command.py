"""How ``stelae chaos`` ends: the report of a run is shown, whatever cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae_chaos import run_command as module
from stelae_chaos.operations import ChaosFinding
from stelae_chaos.report import ChaosReport
from stelae_chaos.run_command import CommandOptions, run_command


@pytest.fixture
def options(tmp_path: Path) -> CommandOptions:
    """The options of a run on a cluster, whose picture is to have the name of a folder."""
    directory, plot = tmp_path / "cluster", tmp_path / "timeline.svg"
    ClusterWithMasters.create(directory, ClusterOptions(), masters=1, formatted=format_here)
    plot.mkdir()
    return CommandOptions(
        directory=directory,
        up=False,
        seconds=1,
        seed=7,
        faults="",
        every_s=None,
        servers=None,
        clients=1,
        keep=None,
        engines={},
        plot=plot,
        as_json=False,
    )


def ended(options: CommandOptions, report: ChaosReport, monkeypatch: pytest.MonkeyPatch) -> int:
    """Carry out the command with a run that has this report."""

    def done(*_: Any) -> ChaosReport:
        return report

    monkeypatch.setattr(module, "_run", done)
    monkeypatch.setattr(module, "_check_runs", lambda *_: None)
    return run_command(options)


def test_findings_are_shown_and_kept_if_the_picture_cannot_be_written(
    options: CommandOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = ChaosReport(seed=7, left_out={})
    report.findings.append(ChaosFinding(check="appends", key="row 0/1", fact="the acknowledged row is lost"))
    assert ended(options, report, monkeypatch) == 1
    out, err = capsys.readouterr()
    assert "NOT OK, findings: 1" in out
    assert "finding: appends, row 0/1: the acknowledged row is lost" in err
    assert "timeline.svg cannot be written" in err
    assert options.directory is not None
    assert (options.directory / "chaos-report.json").is_file() and (options.directory / "chaos-history.jsonl").is_file()


def test_a_clean_run_whose_picture_cannot_be_written_fails(
    options: CommandOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(options, ChaosReport(seed=7, left_out={}), monkeypatch) == 1
    out, err = capsys.readouterr()
    assert out.endswith("ok\n") and "timeline.svg cannot be written" in err


def test_findings_are_shown_if_the_history_cannot_be_written(
    options: CommandOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options.directory is not None and options.plot is not None
    options.plot.rmdir()
    (options.directory / "chaos-history.jsonl").mkdir()
    report = ChaosReport(seed=7, left_out={})
    report.findings.append(ChaosFinding(check="appends", key="row 0/1", fact="the acknowledged row is lost"))
    assert ended(options, report, monkeypatch) == 1
    out, err = capsys.readouterr()
    assert "NOT OK, findings: 1" in out and "chaos-history.jsonl cannot be written" in err
    assert options.plot.is_file() and (options.directory / "chaos-report.json").is_file()
