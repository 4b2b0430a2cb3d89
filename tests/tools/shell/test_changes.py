"""What is taken for a change of a folder since the owner was asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nanobot.io import FENCE
from nanobot.tools.shell.processes import begin, changed_since

_HOUR = 3_600 * 10**9


@pytest.mark.parametrize("ahead", [-_HOUR, _HOUR])
def test_the_file_server_says_when_a_file_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    state, workspace = tmp_path / "state", tmp_path / "workspace"
    state.mkdir()
    workspace.mkdir()
    (workspace / "before").touch()
    right = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: right(clock) + ahead)
    monkeypatch.setattr(FENCE, "shared", tmp_path)
    monkeypatch.setattr(FENCE, "epoch", ".7")
    begun = begin()
    assert changed_since(str(workspace), begun) == ""
    (workspace / "before").chmod(0o644)
    assert changed_since(str(workspace), begun) == "before"
    assert list(state.iterdir()) == []
