"""The watcher when it cannot keep up."""

from __future__ import annotations

import _thread
import sys
from pathlib import Path
from typing import Any

import pytest

from nanobot.security.confine import Spec
from nanobot.security.confine.watcher import Watcher


@pytest.fixture
def watcher(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """The watcher of this process, which does not end during the test."""
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    limits = (1_000_000, 1_000_000, 1, 0)
    spec = Spec("none", str(disk_path), str(disk_path), (), True, False, (), {}, *limits)
    return Watcher(spec, None)


def test_a_command_that_nobody_can_count_is_ended(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert watcher._wait_for_end() == "its resource use can't be measured"
