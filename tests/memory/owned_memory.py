"""A nanobot's memory from its owner's view: real files, sessions, versions and index. Only Dream
has a script."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, OutboundPart
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.documents import LONG_TERM, install_template, load_template
from nanobot.memory.dream import Dream, DreamReport
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter
from nanobot.memory.scopes import OWNER, Memories, Scopes
from nanobot.memory.search import Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.service import MemoryService
from nanobot.memory.service.commands import ForgetQuestions, MemoryCommands
from nanobot.memory.version import Change
from nanobot.memory.why import Explainer
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Session
from nanobot.testing.clock import FakeClock
from nanobot.tools.files import UndoLog
from tests.memory.homes import match_owners

STRANGER = InboundMessage("telegram", "7", "7", "", "e1", FakeClock().now())


class ScriptedDream(Dream):
    """A Dream with a scripted answer."""

    def __init__(self) -> None:
        self.report = DreamReport(OWNER)
        self.runs: list[str] = []

    async def run(self, scope: str, *, asked: bool = False) -> DreamReport:
        assert asked
        self.runs.append(scope)
        return self.report

    def unread(self, scope: str) -> int:
        return 3 if scope == OWNER else 0


class ScriptedConsolidator(MemoryConsolidator):
    """A consolidator that records its conversations."""

    def __init__(self) -> None:
        """Need nothing."""

    async def compact(self, session: Session) -> str:
        return f"Consolidated 4 messages of {session.key}."

    async def consolidate_sealed(self, session: Session) -> None:
        """Do nothing, because no session was ended."""


class OwnedMemory:
    """One nanobot. Telegram's user 1 is its owner, and linked with 2."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        workspace = folder / "workspace"
        install_template(workspace)
        (folder / "state").mkdir()
        root = Root(workspace)
        self.workspace = workspace
        self.scopes = Scopes(match_owners("telegram:1"), [["telegram:1", "fake:2"]])
        template = load_template()
        self.memories = Memories(root, folder / "state", self.clock, template)
        self.sessions = SessionManager(folder / "sessions", self.clock)
        self.journal = SqliteJournal(folder / "state" / "journal.db", self.clock)
        self.index = MemoryIndex(
            folder / "state" / "index.db",
            Sources(
                SessionCatalogue(folder / "sessions", self.clock),
                self.scopes.of_session,
                self.memories.folders,
                template=template,
            ),
            self.clock,
        )
        self.dream = ScriptedDream()
        self.service = self._service()
        self._codes = (f"code{n}" for n in itertools.count(1))
        self._entries = itertools.count(1)
        self.restart_commands()

    def restart_commands(self) -> None:
        """Start again like another process, or another worker of a team, that knows only the
        files."""
        self.registry = CommandRegistry(is_owner=lambda _, sender: sender == "1")
        self.questions = ForgetQuestions(
            Root(self.folder / "state").place("questions"),
            self.clock,
            lambda: next(self._codes),
        )
        MemoryCommands(
            service=self.service,
            consolidator=ScriptedConsolidator(),
            sessions=self.sessions,
            scopes=self.scopes,
            journal=self.journal,
            clock=self.clock,
            questions=self.questions,
            changes=UndoLog(self.folder / "state" / "undo", Root(self.workspace)),
            has_effects=lambda name: name in {"write_file", "update_memory", "message"},
        ).register(self.registry)

    async def remember(self, *lines: str, scope: str = OWNER) -> int:
        """Write facts to MEMORY.md as Dream does, and return the version."""
        store = self.memories.of(scope).store
        standing = store.read("memory/MEMORY.md")
        text = (standing or "# Long-term Memory\n\n").rstrip("\n")
        added = "\n".join(f"- {line}" for line in lines)
        change = Change("dream", f"learned {len(lines)} facts")
        return await store.replace(
            LONG_TERM, f"{text}\n{added}\n", expected=standing, change=change
        )

    def facts(self, scope: str = OWNER) -> str:
        """Return MEMORY.md."""
        return self.memories.of(scope).store.read("memory/MEMORY.md")

    async def add_messages(self, key: str, *texts: str, **metadata: JsonValue) -> Session:
        """Add messages to a conversation, alternately the person's and the answers."""
        session = await self.sessions.get_or_create(key)
        for at, text in enumerate(texts):
            role = "assistant" if at % 2 else "user"
            session.add_message(Message(role, text, turn_id=f"t{at // 2}"))  # type: ignore[arg-type]
        if metadata:
            session.set_metadata(**metadata)
        await self.sessions.save(session)
        return session

    def calls_a_command(self, text: str, *, sender: str = "1", **fields: Any) -> bool:
        """Check whether a message is a command."""
        message = replace(self._write_message(text, sender, ""), **fields)
        return self.registry.find_call(message) is not None

    def says(self, text: str, *answered: str, chat: str = "1") -> None:
        """Send nanobot's message to a chat on telegram, in answer to these events."""
        self.questions.note_reply(OutboundPart("t/1", "telegram", chat, text, event_ids=answered))

    async def type(self, text: str, *, sender: str = "1", group: str = "", **fields: Any) -> str:
        """Return the answer of a command on telegram. Its staged changes are stored, as after a
        real one."""
        message = replace(self._write_message(text, sender, group), **fields)
        session = await self.sessions.get_or_create(message.session_key)
        found = self.registry.find_call(message)
        assert found is not None, f"{text!r} is no command"
        command, arguments = found
        scope = self.scopes.of_message(message, session.key, session.metadata)
        answer = await command.run(
            CommandCall(arguments, message, session, scope, next(self._entries))
        )
        await self.sessions.save(session)
        return answer.text

    def _write_message(self, text: str, sender: str, group: str) -> InboundMessage:
        return replace(
            STRANGER,
            chat_id=group or sender,
            sender_id=sender,
            content=text,
            event_id=f"e{next(self._entries)}",
            is_group=bool(group),
        )

    async def close(self) -> None:
        """Close the files."""
        await self.index.close()
        await self.sessions.close()
        await self.journal.close()

    def _service(self) -> MemoryService:
        explainer = Explainer(self.memories, self.sessions, self.scopes)
        forgetter = Forgetter(self.memories, explainer, self.sessions, self.scopes, self.clock)
        eraser = Eraser(
            self.folder,
            self.workspace,
            sessions=self.sessions,
            journal=self.journal,
            memories=self.memories,
            forgetter=forgetter,
            rebuild_index=self.index.rebuild,
        )
        return MemoryService(
            memories=self.memories,
            scopes=self.scopes,
            index=self.index,
            dream=self.dream,
            explainer=explainer,
            forgetter=forgetter,
            eraser=eraser,
        )
