"""A table of steps on standard output that grows line by line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_WIDTH = 62
_SHOWN_LINES = 40


class StepFailed(Exception):
    """A step failed. `output` is its output."""

    def __init__(self, problem: str, output: str = "") -> None:
        super().__init__(problem)
        self.output = output


@dataclass(slots=True)
class Step:
    """One step: what it is, how it ended, and what there is to say about it."""

    title: str
    outcome: str = "failed"
    seconds: float = 0.0
    remark: str = ""

    def note(self, remark: str) -> None:
        """Say something about it in the table."""
        self.remark = remark

    def line(self) -> str:
        """Return its line in the table."""
        title = self.title if len(self.title) <= _WIDTH else f"{self.title[: _WIDTH - 1]}…"
        return f"{self.outcome:<7} {self.seconds:6.1f} s  {title:<{_WIDTH}}  {self.remark}".rstrip()


class Steps:
    """The table."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Run the body as a step. It failed if an error leaves it."""
        step = Step(title)
        started = time.perf_counter()
        try:
            yield step
            step.outcome = "ok"
        except StepFailed as failure:
            step.remark = str(failure)
            raise
        finally:
            step.seconds = time.perf_counter() - started
            print(step.line(), flush=True)

    def skip(self, title: str, why: str) -> None:
        """Add a step that is impossible here."""
        print(Step(title, "skipped", 0.0, why).line(), flush=True)


def describe_failure(failure: StepFailed) -> str:
    """Return the failure in full, with the end of the output."""
    end = failure.output.rstrip().splitlines()[-_SHOWN_LINES:]
    return "\n".join([f"failed: {failure}", *(f"    {line}" for line in end)])
