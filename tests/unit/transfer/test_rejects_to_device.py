"""The file of bad rows is a regular file: a pipe or a device is refused, and never removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stelae_transfer.rejects import Rejects, RejectsFailed


@pytest.mark.parametrize("size_bytes", [0, 3])
def test_a_named_pipe_is_refused_and_stays(tmp_path: Path, size_bytes: int) -> None:
    """It was removed as an earlier file of bad rows. So was /dev/null, if root ran the import."""
    pipe = tmp_path / "bad"
    os.mkfifo(pipe)
    with pytest.raises(RejectsFailed, match="is not a regular file; choose another file with --bad-rows"):
        Rejects(pipe, size_bytes)
    assert pipe.is_fifo()
