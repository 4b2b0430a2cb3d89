"""The additional start and end of a gateway that is a worker of a team. Only imported if the
settings name a database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial

import msgspec
from loguru import logger

from nanobot.agent.commands import ConversationCommands
from nanobot.app.services import Parts
from nanobot.bus.events import Address, ApprovalAnswer, ApprovalClosed
from nanobot.gateway.scopes import Single
from nanobot.gateway.worker import TeamWorker
from nanobot.io import FENCE, replace_file, storage_errors
from nanobot.tasks import Routine
from nanobot.team.folder import expect_together
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import SINGLE
from nanobot.team.membership import Membership
from nanobot.team.notifications import Answer, SharedQuestions


class Team:
    """This process as a worker. One worker runs the `schedules` for all. Invariant: after `join`,
    the fence precedes every change that others could see (see `nanobot.team.membership`)."""

    def __init__(
        self, parts: Parts, conversation: ConversationCommands, schedules: Sequence[Routine]
    ) -> None:
        base, toolbox, platforms = parts.base, parts.toolbox, parts.platforms
        journal, supervisor = base.stores.journal, platforms.supervisor
        memories, eraser = parts.memory.memories, parts.memory.eraser
        assert isinstance(journal, PostgresJournal)
        self._base, self._journal, self._eraser = base, journal, eraser
        self._approvals, self._dispatcher = toolbox.approvals, platforms.dispatcher
        self._reread = (base.access.refresh, toolbox.skills.loader.state.load)
        self._schedules = schedules
        self.membership = Membership(journal.database.address, base.worker)
        singles = {f"{SINGLE}schedules": Single(self._start_schedules, self._stop_schedules)}
        for name in supervisor.exclusive:
            singles[f"{SINGLE}{name}"] = Single(
                partial(supervisor.start_one, name), partial(supervisor.stop_one, name)
            )
        self.worker = worker = TeamWorker(
            journal,
            self.membership,
            base.settings.data_folder,
            parts.agent.parts,
            parts.agent.loop,
            platforms.dispatcher,
            memories,
            toolbox.helpers,
            conversation,
            refresh=self._refresh,
            singles=singles,
        )
        tell = worker.notifications.tell
        self._questions = SharedQuestions(journal.database, self._settle, tell)
        worker.listeners["answer"] = self._questions.take_answer
        worker.listeners["closed"] = self._close_question
        worker.listeners["erased"] = self._erase
        toolbox.approvals.elsewhere = self._answer
        eraser.notify_others = partial(tell, "erased")
        memories.share(worker.holding, worker.has)
        base.stores.sessions.is_held = lambda key, metadata: worker.has(
            base.scopes.of_session(key, metadata)
        )
        journal.exclusive = supervisor.exclusive
        platforms.rate.count_shared = journal.count_message

    async def _settle(self, code: str, given: Answer) -> str:
        """Take another worker's answer to a question of this worker."""
        return await self._approvals.answer_here(code, given.address, given.answer, given.by)

    async def _answer(
        self, code: str, address: Address | None, answer: ApprovalAnswer, by: str
    ) -> str:
        """Answer a question of another worker."""
        place = (address.channel, address.chat_id, address.thread_id) if address else ()
        return await self._questions.answer(code, Answer(answer, by, *place))

    def note_closed(self, event: ApprovalClosed) -> None:
        """Note that a question of this worker is closed. Another worker may have to remove its
        buttons."""
        self._questions.remove(event.code)
        self.worker.notifications.tell("closed", msgspec.json.encode(event).decode())

    def _close_question(self, event: str) -> None:
        self._dispatcher.close_question(msgspec.json.decode(event, type=ApprovalClosed))

    def _erase(self, text: str) -> None:
        """Erase text that another worker erased from this worker's private files."""
        erasing = self._eraser.erase_own(text)
        self._base.background.start(erasing, name="erase what another worker did")

    def _start_schedules(self) -> None:
        for routine in self._schedules:
            name = type(routine).__name__
            self._base.awaited_background.start(routine.run_forever(), name=name)

    async def _stop_schedules(self) -> None:
        for routine in self._schedules:
            routine.stop()

    def _refresh(self) -> None:
        """Reread documents that other workers change and the event loop reads. Blocks."""
        for read in self._reread:
            read()

    async def join(self) -> None:
        """Become a worker, before any change. Raises `StorageError`."""
        settings, membership = self._base.settings, self.membership
        number = await asyncio.to_thread(self._join)
        address = self._journal.database.address
        # Check again: since `join`, nobody can dissolve the team any more.
        word = await asyncio.to_thread(expect_together, address, settings.data_folder)
        self.worker.notifications.channel = f"nanobot_{word}"
        self._journal.database.worker = number
        FENCE.epoch, FENCE.wait = f".{number}", membership.wait_until_valid
        FENCE.is_open = lambda: membership.is_valid
        FENCE.shared, FENCE.locks = settings.data_folder, settings.home / "state" / "locks"
        logger.info("this is worker {} ({})", number, membership.name)

    def _join(self) -> int:
        """Return the number of this process as a worker. The lock of the home proves that the
        previous process has ended, so it can be fenced at once. The home may be a copy from another
        machine whose worker is alive."""
        note, here = self._base.stores.state / "worker", f" {socket.gethostname()}"
        with storage_errors(note):
            before = note.read_text() if note.exists() else ""
            known = before.removesuffix(here)
            mine = before.endswith(here) and known.isdecimal()
            number = self.membership.join(int(known) if mine else 0)
            replace_file(note, f"{number}{here}".encode())
        return number

    async def start(self) -> None:
        await asyncio.to_thread(self._refresh)
        await self.worker.start()

    async def close(self) -> None:
        """Release everything and leave, before the journal is closed."""
        await self._questions.close()
        await self.worker.close()
