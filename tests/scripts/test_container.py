"""Health checks of a running image, as by Docker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.clean_room.building import Image
from scripts.clean_room.container import Container
from scripts.clean_room.dockerfile import Healthcheck
from scripts.clean_room.processes import OVERDUE, run_to_end
from scripts.clean_room.steps import StepFailed


class Hanging(Container):
    """A container whose first `times` checks hang."""

    times = 1

    def execute(
        self, words: Sequence[str], seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        self.times -= 1
        return run_to_end(["sleep", "60"] if self.times >= 0 else ["true"], seconds)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until the end of the test."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as running:
        yield running


def container(folder: Path, process: subprocess.Popen[bytes], start_period: float) -> Hanging:
    log = folder / "log"
    log.write_text("what it printed")
    health = Healthcheck(("check",), timeout=0.05, start_period=start_period)
    return Hanging(Image(folder, health=health), process, log)


def test_a_health_check_that_hangs_is_one_that_failed_and_is_asked_again(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    assert container(tmp_path, process, 60.0).until_healthy() < 60.0


def test_one_that_always_hangs_is_told_as_that(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    hanging = container(tmp_path, process, 0.01)
    hanging.times = 1_000
    with pytest.raises(StepFailed, match="did not pass") as failure:
        hanging.until_healthy()
    assert failure.value.output.startswith("it did not stop within 0.05 s\n")


def test_what_takes_too_long_is_killed_and_said_to_be_overdue() -> None:
    done = run_to_end(["sleep", "60"], 0.05)
    assert (done.returncode, done.stdout) == (OVERDUE, "it did not stop within 0.05 s\n")


def test_what_ends_was_given_its_input_and_says_everything_in_order() -> None:
    done = run_to_end(["sh", "-c", "cat; echo wrong >&2; exit 3"], 30.0, "a line\n")
    assert (done.returncode, done.stdout) == (3, "a line\nwrong\n")
