"""An entry that the model refuses to read (a content filter, a small window) holds up no others.

What is refused together is asked about in halves, down to the entry that is to blame. That one is
left out of the rest of the run and counts as skipped, which gives it up after two runs; but only
where the model answered to something else: one that refuses everything is set up wrongly, then the
run fails and nothing is given up.
"""

from __future__ import annotations

from dataclasses import replace

from nanobot.errors import ProviderRejected
from nanobot.memory.dream.reading import Batch
from nanobot.memory.dream.state import Plan, ScopeState


class Refusals:
    """Those of one run; `most` is how many entries may be asked about next."""

    def __init__(self, most: int) -> None:
        self.most = self._whole = most
        self._aside: frozenset[str] = frozenset()
        self._uncounted: frozenset[str] = frozenset()
        self._last: ProviderRejected | None = None
        self._answered = False

    def beyond(self, state: ScopeState) -> ScopeState:
        """`state` as if what was refused by itself had been read."""
        return replace(state, done=state.done | self._aside)

    def refused(self, error: ProviderRejected, batch: Batch) -> None:
        """A question about `batch` was refused. Raises `error` if not for what stands in it."""
        if not error.blames_content:
            raise error
        if len(batch.entries) > 1:
            self.most = len(batch.entries) // 2
            return
        alone = {entry.key for entry in batch.entries}
        self._aside |= alone
        self._uncounted |= alone
        self._last = error

    def answered(self, plan: Plan) -> Plan:
        """`plan`, which the model answered with, with what it refused before as skipped."""
        self._answered = self._answered or plan.entries > 0
        self.most = min(self._whole, self.most * 2)
        return self._counting(plan, self._uncounted) if self._answered else plan

    def left(self, state: ScopeState, plan: Plan) -> Plan | None:
        """`plan`, which reads nothing more, with what is still to be counted; None where nothing
        is. Raises the error where nothing but refusals came of the run."""
        known = self._uncounted & state.skipped.keys()  # others were answered at that time
        counted = self._uncounted if self._answered else known
        if self._last is not None and not self._answered and not counted:
            raise self._last
        return self._counting(plan, counted) if counted else None

    def _counting(self, plan: Plan, keys: frozenset[str]) -> Plan:
        self._uncounted -= keys
        return replace(plan, skipped=plan.skipped | keys)
