"""Carrying out a plan: facts that wait for the owner, then the changes of each file.

What was forgotten since the plan was made is left out of it. Everything here may be done again
after a crash. What a version or the file itself shows to be done is not repeated, also where the
person has undone it since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from loguru import logger

from nanobot.errors import ToolError, WriteConflict
from nanobot.memory.dream.state import DreamReport, Hold, Plan, Write
from nanobot.memory.forgetting.forgotten import Forgotten
from nanobot.memory.scopes import Memory
from nanobot.memory.store.guard import bare
from nanobot.memory.store.pending import PendingFact
from nanobot.memory.text.lines import Operation, apply_operations
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import Change

_LATELY = 50
"""Versions among which one from before a crash is looked for."""


class Writer:
    """Writes for one scope, and nothing that is `forgotten` there. `versions` is None where changes
    are not kept."""

    def __init__(self, memory: Memory, versions: GitStore | None, forgotten: Forgotten) -> None:
        self._memory = memory
        self._versions = versions
        self._forgotten = forgotten
        self.held: list[PendingFact] = []
        """What waits from now on, for the person to be shown."""

    async def carry_out(self, plan: Plan, *, again: bool = False) -> DreamReport:
        """Do all of `plan`; `again` where a part of it may have been done before a crash.

        Raises `WriteConflict` where a file does not hold still, `StorageError` when the disk does
        not take it; it can then be carried out again.
        """
        report = DreamReport(self._memory.scope, plan.entries)
        for hold in plan.holds:
            kept = await asyncio.to_thread(self._known, plan, hold.operations)
            report = report.plus(await self._hold(replace(hold, operations=kept), plan.run))
        for write in plan.writes:
            number = await self._version_of(write) if again else 0
            kept = await asyncio.to_thread(self._known, plan, write.operations)
            wanted = replace(write, operations=kept)
            done = self._report(wanted, number) if number else await self._write(wanted, plan.run)
            report = report.plus(done)
        return report

    def _known(self, plan: Plan, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """The operations without what was forgotten since they were planned. Blocks."""
        return tuple(self._unforgotten(plan, operations))

    def _unforgotten(self, plan: Plan, operations: Sequence[Operation]) -> Iterator[Operation]:
        for one in operations:
            if not one.new:  # what is over may go, forgotten or not
                yield one
            elif not self._forgotten.hides_line(one.new, plan.since):
                old = self._forgotten.hides_line(one.old, plan.since)
                yield replace(one, old="") if old else one

    async def _hold(self, hold: Hold, run: str) -> DreamReport:
        if not hold.operations:
            return DreamReport(self._memory.scope)
        change = Change("dream", "held back for the person to confirm", run=run)
        self.held += await self._memory.pending.hold(
            hold.operations, hold.path, hold.origins, change
        )
        lines = tuple(bare(one.new) or f"no longer: {bare(one.old)}" for one in hold.operations)
        return DreamReport(self._memory.scope, held_back=lines)

    async def _write(self, write: Write, run: str) -> DreamReport:
        text = await asyncio.to_thread(self._memory.store.read, write.path)
        if apply_operations(text, write.operations).text == text:
            return DreamReport(self._memory.scope)
        try:
            number, left = await self._memory.store.apply(
                write.path, write.operations, _change(write, run), retired=write.retired
            )
        except WriteConflict:
            raise
        except ToolError as error:  # the guard: the file is full, or would lose too much
            logger.warning("Dream could not write: {}", error)
            return await self._keep(write, write.operations, run)
        done = tuple(one for one in write.operations if one not in left)
        report = self._report(replace(write, operations=done), number)
        return report.plus(await self._keep(write, left, run)) if left else report

    async def _keep(self, write: Write, operations: tuple[Operation, ...], run: str) -> DreamReport:
        """Let the person decide on what could not be written."""
        facts = tuple(one for one in operations if one.new)
        over = tuple(bare(one.old) for one in operations if not one.new)
        held = await self._hold(Hold(write.path, facts, ("dream",)), run)
        return held.plus(DreamReport(self._memory.scope, refused=over))

    async def _version_of(self, write: Write) -> int:
        """The version that made this change already, 0 where none did."""
        if self._versions is None:
            return 0
        versions = await asyncio.to_thread(self._versions.log, self._memory.prefix, _LATELY)
        path = self._memory.prefix + write.path
        for version in versions:
            made = set(version.change.operations)
            if (
                version.author == "dream"
                and path in version.paths
                and made >= set(write.operations)
            ):
                return version.number
        return 0

    def _report(self, write: Write, number: int) -> DreamReport:
        over = {bare(line) for line in write.retired}
        return DreamReport(
            self._memory.scope,
            learned=tuple(bare(one.new) for one in write.operations if one.new),
            retired=tuple(
                bare(one.old) for one in write.operations if one.old and bare(one.old) in over
            ),
            versions=(number,) if number else (),
        )


def _change(write: Write, run: str) -> Change:
    cursors = sorted({one.cursor for one in write.operations if one.cursor})
    return Change(
        "dream",
        summary=_summary(write),
        cursors=tuple(cursors),
        operations=write.operations,
        run=run,
    )


def _summary(write: Write) -> str:
    learned = [bare(one.new) for one in write.operations if one.new]
    parts = []
    if learned:
        more = f" and {len(learned) - 1} more" if len(learned) > 1 else ""
        parts.append(f"learned: {learned[0][:60]}{more}")
    if write.retired:
        parts.append(f"retired {len(write.retired)}")
    return "; ".join(parts)
