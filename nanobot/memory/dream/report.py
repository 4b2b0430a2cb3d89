"""What a Dream did, as a value and as words for people."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN = 12
"""Lines of one kind in a message; the rest is counted."""


@dataclass(frozen=True, slots=True)
class DreamReport:
    """What one run of Dream did for one scope.

    `entries` is how many were read through. `learned`, `retired` and `held_back` are lines without
    bullets, `refused` lines that are over but may not go; `versions` the numbers of the versions
    that it made, oldest first, any of which stands for all. `problem` says why it ended early, in a
    sentence, empty where it did not; `is_outage` tells that the model could not be asked, so that
    other scopes fare no better.
    """

    scope: str
    entries: int = 0
    learned: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    problem: str = ""
    refused: tuple[str, ...] = ()
    is_outage: bool = False

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell a person who did not ask."""
        return bool(self.learned or self.retired or self.held_back or self.refused)

    @property
    def text(self) -> str:
        """For a person who asked for it."""
        parts = [
            self._learned(),
            self._retired(),
            self._held_back(),
            self._refused(),
            self._problem(),
        ]
        return "\n\n".join(part for part in parts if part) or self._nothing()

    @property
    def digest(self) -> str:
        """For a person who did not ask: the same, and how to undo it."""
        return "\n\n".join(part for part in (self.text, self._undo()) if part)

    @property
    def undoable(self) -> int:
        """The version that undoes the run, 0 where it made none."""
        return max(self.versions, default=0)

    def plus(self, later: DreamReport) -> DreamReport:
        """This and what came after it, as one."""
        return DreamReport(
            self.scope,
            self.entries + later.entries,
            (*self.learned, *later.learned),
            (*self.retired, *later.retired),
            (*self.held_back, *later.held_back),
            (*self.versions, *later.versions),
            later.problem or self.problem,
            (*self.refused, *later.refused),
            self.is_outage or later.is_outage,
        )

    def _learned(self) -> str:
        return _listed("While dreaming I learned:", self.learned)

    def _retired(self) -> str:
        return _listed("No longer true, so I put it aside (memory/retired.md):", self.retired)

    def _held_back(self) -> str:
        heading = "These wait for your word, since text from elsewhere was read (/memory pending):"
        return _listed(heading, self.held_back)

    def _refused(self) -> str:
        heading = "These seem to be over, but so much may not go at once, so they stay:"
        return _listed(heading, self.refused)

    def _problem(self) -> str:
        return f"I had to stop early: {self.problem}" if self.problem else ""

    def _nothing(self) -> str:
        if not self.entries:
            return "Nothing new to dream about."
        things = "one entry" if self.entries == 1 else f"{self.entries} entries"
        return f"Nothing new: I looked through {things} and already knew what matters."

    def _undo(self) -> str:
        if not self.undoable:
            return ""
        return f"Not right? Undo it with `/dream-restore --version {self.undoable}`."


def _listed(heading: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:_SHOWN]]
    more = len(lines) - len(shown)
    return "\n".join([heading, *shown, *([f"- … and {more} more"] if more else [])])
