"""A gateway that is one of several workers: what it has in place of a journal in a file, and what
it does more when it begins and ends. Imported where the settings name a database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from loguru import logger

from nanobot.agent.loop import AgentLoop
from nanobot.agent.session_queue import Lanes, SessionQueue
from nanobot.bus.events import (
    Address,
    ApprovalAnswer,
    ApprovalClosed,
    InboundMessage,
)
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.gateway.channels import SenderRateLimit, Supervisor
from nanobot.gateway.delivery import Dispatcher
from nanobot.gateway.worker import Single, TeamWorker
from nanobot.io import FENCE, replace_file, storage_errors
from nanobot.memory.erase import Eraser
from nanobot.memory.scopes import Memories, Scopes
from nanobot.security.access import Access
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background, Routine
from nanobot.team import asking
from nanobot.team.folder import expect_together
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import SINGLE
from nanobot.team.membership import Membership, end_process
from nanobot.team.postgres import Database
from nanobot.tooling.approvals import Approvals


def build_team_journal(settings: Settings, clock: Clock) -> PostgresJournal:
    """The journal in the team's database; whose a message is can be told once people are known.
    Raises `NanobotError` where database and folder are not of one team: neither is changed then."""
    dsn = settings.team.database.get_secret_value()
    database = Database(dsn, lambda: end_process("others go on with what it had"))
    expect_together(database.address, settings.shared)
    return PostgresJournal(database, clock, lambda message: message.scope)


def scope_of(scopes: Scopes, sessions: SessionManager, message: InboundMessage) -> str:
    """Whose memory a message is answered with. Blocks for a file of the conversation, where it
    depends on that."""
    key = message.session_key
    metadata = sessions.metadata_of(key) if message.session_override else {}
    return scopes.of_message(message, key, metadata)


class Team:
    """This process as a worker. Invariant: from `join` on, nothing that others could see is changed
    without the fence (see `nanobot.team.membership`)."""

    def __init__(
        self,
        settings: Settings,
        journal: PostgresJournal,
        access: Access,
        scopes: Scopes,
        sessions: SessionManager,
        bus: MessageBus,
        clock: Clock,
        lanes: Lanes,
    ) -> None:
        self._settings, self._journal, self._sessions = settings, journal, sessions
        self._scopes = scopes
        self.reread: list[Callable[[], object]] = [access.refresh]
        """What others change and is asked for on the event loop; read again every moment."""
        self.membership = Membership(journal.database.address, settings.team.name)
        journal.scope_of = partial(scope_of, scopes, sessions)
        self.worker = TeamWorker(journal, self.membership, settings.shared, bus, clock, lanes)

    def share_questions(self, approvals: Approvals, dispatcher: Dispatcher) -> None:
        """Let questions to the owner be answered at any worker."""

        async def settle(code: str, given: asking.Answer) -> str:
            return await approvals.answer_for_other(code, given.address, given.answer, given.by)

        async def elsewhere(
            code: str, address: Address | None, answer: ApprovalAnswer, by: str
        ) -> str:
            place = (address.channel, address.chat_id, address.thread_id) if address else ()
            return await self._questions.answer(code, asking.Answer(answer, by, *place))

        def closed(event: str) -> None:
            dispatcher.close_question(msgspec.json.decode(event, type=ApprovalClosed))

        tell, listeners = self.worker.waking.tell, self.worker.listeners
        self._questions = asking.SharedQuestions(self._journal.database, settle, tell)
        approvals.elsewhere = elsewhere
        listeners["answer"], listeners["closed"] = self._questions.heard, closed

    def share_limits(self, rate: SenderRateLimit) -> None:
        """Let all workers count what each person sends."""
        rate.count_all = self._journal.count_message

    def share_erasures(self, eraser: Eraser, background: Background) -> None:
        """Let what is erased at one worker leave what the others have for themselves."""
        eraser.tell_others = partial(self.worker.waking.tell, "erased")

        def heard(text: str) -> None:
            background.start(eraser.erase_own(text), name="erase what another worker did")

        self.worker.listeners["erased"] = heard

    def note_closed(self, event: ApprovalClosed) -> None:
        """A question of this worker is closed; its buttons may be another's to take."""
        self._questions.closed(event.code)
        self.worker.waking.tell("closed", msgspec.json.encode(event).decode())

    async def join(self) -> None:
        """Become a worker, before anything is changed. Raises `StorageError`."""
        settings, membership = self._settings, self.membership
        number = await asyncio.to_thread(self._join)
        address = self._journal.database.address
        # Once more: from here on nobody can leave the team, who could before.
        word = await asyncio.to_thread(expect_together, address, settings.shared)
        self.worker.waking.channel = f"nanobot_{word}"
        self._journal.database.worker = number
        FENCE.epoch, FENCE.wait = f".{number}", membership.wait_until_valid
        FENCE.is_open = lambda: membership.is_valid
        FENCE.shared, FENCE.locks = settings.shared, settings.home / "state" / "locks"
        logger.info("this is worker {} ({})", number, membership.name)

    def _join(self) -> int:
        """The number of this process. Whoever holds the lock of this home knows that the process
        before it has ended, so nobody has to wait until that is taken to be dead. The home may be
        the copy of one on another machine, whose worker lives."""
        note, here = self._settings.home / "state" / "worker", f" {socket.gethostname()}"
        with storage_errors(note):
            before = note.read_text() if note.exists() else ""
            known = before.removesuffix(here)
            mine = before.endswith(here) and known.isdecimal()
            number = self.membership.join(int(known) if mine else 0)
            replace_file(note, f"{number}{here}".encode())
        return number

    async def start(
        self,
        loop: AgentLoop,
        memories: Memories,
        dispatcher: Dispatcher,
        supervisor: Supervisor,
        find_helpers: Callable[[Collection[str]], Coroutine[Any, Any, None]],
        stop: Callable[[str, int], Awaitable[str]],
        routines: Sequence[Routine],
        background: Background,
    ) -> None:
        """Take up work from now on, for the agent and the channels of this process. `routines` are
        those that one worker runs for all."""

        def start_routines() -> None:
            for routine in routines:
                background.start(routine.run_forever(), name=type(routine).__name__)

        async def stop_routines() -> None:
            for routine in routines:
                routine.stop()

        singles = {f"{SINGLE}schedules": Single(start_routines, stop_routines)}
        for name in supervisor.exclusive:
            singles[f"{SINGLE}{name}"] = Single(
                partial(supervisor.start_one, name), partial(supervisor.stop_one, name)
            )
        self._journal.exclusive = supervisor.exclusive
        await asyncio.to_thread(self._reread)
        memories.share(self.worker.holding, self.worker.has)
        self._sessions.is_held = lambda key, metadata: self.worker.has(
            self._scopes.of_session(key, metadata)
        )
        self.worker.connect(
            loop,
            dispatcher,
            self._sessions,
            memories.recover_scope,
            find_helpers,
            stop,
            self._reread,
            singles,
        )
        await self.worker.start()

    def _reread(self) -> None:
        for read in self.reread:
            read()

    async def hand_over(self, queue: SessionQueue) -> None:
        """Begin nothing more: what waits here is for other workers, at once."""
        await self.worker.hand_over(queue.drop_waiting())

    async def close(self) -> None:
        """Give back everything and leave, before the journal is closed."""
        await self._questions.close()
        await self.worker.close()
