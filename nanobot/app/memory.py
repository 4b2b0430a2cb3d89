"""Builds memory: its scopes, files and versions, search, Dream, and the operations on all of it."""

from __future__ import annotations

import asyncio

from loguru import logger

from nanobot.app.base import Base, build_embedder
from nanobot.cron.schedule import parse
from nanobot.errors import NanobotError
from nanobot.memory.documents import load_template
from nanobot.memory.dream import Dream, DreamSchedule
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter
from nanobot.memory.recall import FactUses
from nanobot.memory.scopes import Memories
from nanobot.memory.search import Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.vectors import VectorWorker
from nanobot.memory.service import MemoryService
from nanobot.memory.why import Explainer
from nanobot.providers.port import Provider


class MemoryParts:
    """The parts of memory. `provider` consolidates and dreams. With `notifies`, people are notified
    of pending facts and of Dream's changes. `schedule` is None if Dream runs only on request."""

    def __init__(self, base: Base, provider: Provider, *, notifies: bool = False) -> None:
        settings, stores, clock, scopes = base.settings, base.stores, base.clock, base.scopes
        dreaming, sessions = settings.dream, stores.sessions
        template = load_template()
        notifier = base.notifier if notifies else None
        self.memories = memories = Memories(
            stores.workspace,
            stores.shared_state,
            clock,
            template,
            base.processes.quiesce,
            notifier.notify_held if notifier else None,
            notifier.notify_loss if notifier else None,
            budget=settings.prompt_tokens("chat", "memory"),
            uses=FactUses(stores.journal.state),
            recent_days=settings.memory.recent_days,
        )

        library = stores.workspace.path / "library"
        worker = VectorWorker(clock)
        self.index = MemoryIndex(
            stores.state / "index.db",
            Sources(
                stores.catalogue, scopes.of_session, memories.folders, library, template=template
            ),
            clock,
            build_embedder(settings, clock, worker),
            worker,
        )
        self.dream = dream = Dream(
            provider=provider,
            memories=memories,
            clock=clock,
            read_messages=sessions.read_conversation,
            state=stores.journal.state,
            on_digest=notifier.notify_digest if notifier and dreaming.digest else None,
            on_failures=notifier.warn if notifier else None,
        )
        due = parse(dreaming.cron).next_after
        schedule = DreamSchedule(dream, memories, due, clock)
        self.schedule = schedule if dreaming.enabled else None
        explainer = Explainer(memories, sessions, scopes)
        forgetter = Forgetter(
            memories, explainer, sessions, scopes, clock, pause_learning=dream.pause_for_forgetting
        )
        self.eraser = eraser = Eraser(
            stores.shared,
            stores.workspace.path,
            sessions=sessions,
            journal=stores.journal,
            memories=memories,
            forgetter=forgetter,
            rebuild_index=self.index.refresh,
            scope_of=lambda key: scopes.of_session(key, sessions.metadata_of(key)),
            own_home=stores.home if stores.home != stores.shared else None,
        )
        self.service = MemoryService(
            memories=memories,
            scopes=scopes,
            index=self.index,
            dream=dream,
            explainer=explainer,
            forgetter=forgetter,
            eraser=eraser,
        )

    async def recover(self) -> None:
        """Finish interrupted changes, before the start does anything else.

        Damage is only logged: a nanobot with broken memory still answers."""
        try:
            await asyncio.to_thread(self.memories.recover)
        except NanobotError as error:  # writes report it, and chats work without
            logger.error("memory cannot be recovered: {} {}", error, error.hint)

    async def close(self) -> None:
        await self.index.close()
