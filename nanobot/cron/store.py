"""`state/jobs.json`: the scheduled jobs, readable by the owner of the home only.

Invariant: nothing is overwritten that was not understood. A file that cannot be parsed is
quarantined as it is; an entry that cannot is kept in its place; and what somebody else wrote into
the file meanwhile is read before anything is written.
"""

from __future__ import annotations

from pathlib import Path

from loguru import logger

from nanobot.cron.codec import decoded, encoded, problem_of
from nanobot.cron.job import Jobs
from nanobot.security.documents import StateDocument

_ADVICE = "Fix it and put it back in its place; its jobs do not run until then."


class JobStore(StateDocument[Jobs]):
    """The jobs in the file at `path`, in an existing folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, self._decoded, encoded, Jobs(), _ADVICE, keep_unreadable=True)
        self._unread = ""

    @property
    def problems(self) -> str:
        """What was not understood when it was read, and what to do; empty where all was."""
        return " ".join(filter(None, (self.trouble, self._unread)))

    def _decoded(self, content: bytes) -> Jobs:
        jobs = decoded(content)
        entries = [f"An entry is not used: {problem_of(one)}." for one in jobs.unread]
        self._unread = " ".join([*entries, f"It stays in {self.path} as it is."] if entries else ())
        if entries:
            logger.error("{}", self._unread)
        return jobs
