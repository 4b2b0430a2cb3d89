"""What the one that stays outside does where it cannot keep up."""

from __future__ import annotations

import _thread
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from nanobot.security.confine import ProcessLimits, Spec
from nanobot.security.confine.tree import TreeWatch
from nanobot.security.confine.watcher import Watcher


class _Behind:
    """A watch that has something left to see, of which its descriptor does not tell."""

    descriptor = -1
    is_behind = True

    def __init__(self) -> None:
        self.looks = 0

    def appeared(self) -> str:
        self.looks += 1
        return "something appeared" if self.looks > 1 else ""


@pytest.fixture
def watcher(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """Beside this process, which does not end meanwhile."""
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    limits = ProcessLimits(1_000_000, 1_000_000, 1, 0)
    spec = Spec("none", str(disk_path), str(disk_path), (), True, False, (), {}, limits)
    return Watcher(spec, cast(TreeWatch, _Behind()))


def test_what_was_missed_is_looked_for_soon(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: 0)
    begun = time.monotonic()
    assert watcher._until_the_end() == "something appeared"
    assert time.monotonic() - begun < 0.8


def test_a_command_that_nobody_can_count_is_ended(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    assert watcher._until_the_end() == "what it uses cannot be counted"
