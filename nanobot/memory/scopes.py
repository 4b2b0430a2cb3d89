"""Whose memory: the scope of a message or a conversation, and the memory that belongs to it.

A scope is `owner`, `people/<channel>_<id>` or `groups/<channel>_<chat>`; the ids are encoded as
those of sessions are, so that whatever a stranger is called, a scope is one name in one folder.
The owner's memory lies in the workspace itself, every other in the folder of its scope's name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.bus.events import (
    API,
    NANOBOT,
    PAGE,
    TERMINAL,
    Address,
    InboundMessage,
    account_of,
)
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.documents import OTHER_SCOPE, TRACKED
from nanobot.memory.git import repositories
from nanobot.memory.gitstore import GitStore
from nanobot.memory.history import HISTORY, HistoryLog
from nanobot.memory.losses import NotifyLoss
from nanobot.memory.pending import NotifyHeld, Pending
from nanobot.memory.recall import FactUses, Recall
from nanobot.memory.store import MemoryStore
from nanobot.security.paths import Root
from nanobot.session.records import JsonValue, stem_of

OWNER = "owner"
_SCOPE = re.compile(OTHER_SCOPE)


def is_scope(name: str) -> bool:
    """Whether `name` is the name of a scope, and so safe to make a folder of."""
    return name == OWNER or _SCOPE.fullmatch(name) is not None


def is_group(scope: str) -> bool:
    return scope.startswith("groups/")


def prefix_of(scope: str) -> str:
    """Where a scope's files lie in the workspace: `` for the owner, `people/telegram_7/`.

    Raises `ValueError` for a name that is no scope's.
    """
    if not is_scope(scope):
        raise ValueError(f"{scope!r} is not a scope")
    return "" if scope == OWNER else f"{scope}/"


def chat_of(key: str, metadata: Mapping[str, JsonValue]) -> str:
    """The id of the chat that a conversation is held in, without its thread: as `metadata` has it,
    or else from the key."""
    chat = metadata.get("chat")
    if isinstance(chat, str) and chat:
        return chat
    chat = key.partition(":")[2]
    return Address.of(key).chat_id if ":" in chat else chat


class OthersConversation(NanobotError):
    """Somebody would write in a conversation of another scope."""

    def __init__(self) -> None:
        super().__init__("You can't write in this conversation because it belongs to someone else.")


class Scopes:
    """Who is who.

    `is_owner` says whether a sender (channel, sender id) is the owner, and is asked each time:
    somebody may become it while nanobot runs. On `cli` everyone is. Each of `identities` lists the
    `channel:sender` of one person. With `groups_see_owner` groups may read the owner's memory
    beside their own.
    """

    def __init__(
        self,
        is_owner: Callable[[str, str], bool],
        identities: Sequence[Sequence[str]] = (),
        groups_see_owner: bool = False,
    ) -> None:
        self._is_owner, self._groups_see_owner = is_owner, groups_see_owner
        self._linked: dict[str, Sequence[str]] = {}
        for names in identities:
            self._linked |= dict.fromkeys(names, names)

    def is_owner(self, channel: str, sender_id: str) -> bool:
        """Whether this sender is the owner, by themselves or by a linked identity."""
        return self.of_sender(channel, sender_id) == OWNER

    def is_owners(self, inbound: InboundMessage) -> bool:
        """Whether only the owner reads the chat of a message."""
        return self.of_message(inbound, inbound.session_key, {}) == OWNER

    @property
    def linked(self) -> Mapping[str, Sequence[str]]:
        """The accounts that are one person's, by scope."""
        named = [names for names in self._linked.values() if ":" in names[0]]
        return {self.of_sender(*names[0].split(":", 1)): names for names in named}

    def of_message(
        self, inbound: InboundMessage, key: str, metadata: Mapping[str, JsonValue]
    ) -> str:
        """The scope that speaks: a job says whose it is, and what nanobot itself notes in a
        conversation is that one's."""
        if inbound.scope and is_scope(inbound.scope):
            return inbound.scope
        if inbound.session_override and inbound.sender_id == NANOBOT:
            return self.of_session(key, metadata)
        if inbound.is_group:
            return _group(inbound.channel, inbound.chat_id)
        return self.of_sender(inbound.channel, inbound.sender_id)

    def expect_own(
        self, inbound: InboundMessage, key: str, metadata: Mapping[str, JsonValue]
    ) -> str:
        """Admit a message to the conversation `key`: return the scope that the conversation has to
        be set aside for, because it belongs to that one and its chat is another's now. Empty if the
        conversation is the speaker's own, or new.

        A conversation belongs to one scope from its first message on. Raises `OthersConversation`
        if the speaker chose one that is not theirs.
        """
        chose = bool(inbound.session_override) or inbound.channel == PAGE
        owner = self.owner_of(key, metadata)
        if inbound.session_override and not inbound.scope and not owner:
            if key.partition(":")[0] in (PAGE, API):  # whose names are made by others
                raise OthersConversation
            owner = self.of_session(key, metadata)
        if owner in ("", self.of_message(inbound, key, metadata)):
            return ""
        if chose:
            raise OthersConversation
        return owner

    def owner_of(self, key: str, metadata: Mapping[str, JsonValue]) -> str:
        """The scope that a conversation belongs to; empty before its first message."""
        is_begun = not metadata.keys().isdisjoint(("scope", "sender", "group"))
        return self.of_session(key, metadata) if is_begun else ""

    def of_session(self, key: str, metadata: Mapping[str, JsonValue]) -> str:
        """The scope of a conversation.

        `metadata` may say `scope` (which then holds), `sender`, `group` (true for one) and `chat`.
        What is not said is read from the key: a private chat is named after its person.
        """
        said = metadata.get("scope")
        if isinstance(said, str) and is_scope(said):
            return said
        channel, chat = key.partition(":")[0], chat_of(key, metadata)
        if metadata.get("group") is True:
            return _group(channel, chat)
        sender = metadata.get("sender")
        return self.of_sender(channel, sender if isinstance(sender, str) else chat)

    def readable(self, scope: str) -> tuple[str, ...]:
        """The scopes whose memory `scope` may read, its own first."""
        sees_owner = self._groups_see_owner and is_group(scope)
        return (scope, OWNER) if sees_owner else (scope,)

    def of_sender(self, channel: str, sender_id: str) -> str:
        """The scope of a sender; of the account that a program names with `API` as channel."""
        channel, sender_id = account_of(channel, sender_id)
        account = f"{channel}:{sender_id}"
        names = self._linked.get(account)
        if names is None:  # the usual case, without a loop: a page asks it of ten thousand
            is_owner = channel == TERMINAL or self._is_owner(channel, sender_id)
            return OWNER if is_owner else f"people/{stem_of(account)}"
        for name in names:
            there, _, id = name.partition(":")
            if there == TERMINAL or self._is_owner(there, id):
                return OWNER
        return f"people/{stem_of(names[0])}"


def _group(channel: str, chat_id: str) -> str:
    return f"groups/{stem_of(f'{channel}:{chat_id}')}"


class Memory(Struct, frozen=True):
    """What is remembered for one scope.

    `prefix` is where its files lie in the workspace; `root` is that folder, for the file tools of a
    turn that serves the scope. It exists once something was written.
    """

    scope: str
    prefix: str
    root: Root
    store: MemoryStore
    history: HistoryLog
    pending: Pending
    recall: Recall
    versions: GitStore


class Memories:
    """The memory of every scope.

    `workspace` must be the root that the tools write through. The versions are in the folder
    `state`. `template` is the initial text of each file. No folder is made before the first write.
    `quiesce` takes a scope and is entered around the replacing of its rule files. `notify_held`
    shows the person of a scope its held changes, `notify_loss` its losses. `budget` is the room for
    a prompt in tokens. `uses` records the use of facts, to choose the facts for a prompt. Prompts
    hold the notes of the last `recent_days` days.
    """

    def __init__(
        self,
        workspace: Root,
        state: Path,
        clock: Clock,
        template: Mapping[str, str] | None = None,
        quiesce: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
        notify_held: NotifyHeld | None = None,
        notify_loss: NotifyLoss | None = None,
        *,
        budget: int = 128_000,
        uses: FactUses | None = None,
        recent_days: int = 2,
    ) -> None:
        self._workspace, self._budget, self._uses = workspace, budget, uses
        self._recent_days = recent_days
        self._notify_held, self._notify_loss = notify_held, notify_loss
        self._clock = clock
        self._template = template or {}
        self._state = state
        self._quiesce = quiesce
        self.forgotten = 0
        """Grows whenever something left memory for good: what was read of it before is out of
        date then."""
        self._hold: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
        self.is_held: Callable[[str], bool] = lambda _: True
        """Whether the scope's files are this process's to change now."""
        self._made: dict[str, Memory] = {}
        self._making = threading.Lock()

    def of(self, scope: str) -> Memory:
        """The memory of a scope, always the same object. Raises `ValueError` for no scope."""
        with self._making:
            if scope not in self._made:
                self._made[scope] = self._make(scope)
            return self._made[scope]

    def share(
        self, hold: Callable[[str], AbstractAsyncContextManager[None]], has: Callable[[str], bool]
    ) -> None:
        """Other workers change these files as well: `hold` lets a scope be this one's while it is
        entered, `has` says whether it is now."""
        self._hold, self.is_held = hold, has

    def holding(self, scope: str) -> AbstractAsyncContextManager[None]:
        """Enter this around changes of a scope's files that no message of it asked for. Entering
        raises `NanobotError` if another worker keeps the scope. May be passed on before `share`."""
        return self._hold(scope)

    @asynccontextmanager
    async def holding_each(self, scopes: Iterable[str]) -> AsyncIterator[None]:
        """The same for all of these."""
        async with AsyncExitStack() as stack:
            for scope in sorted(scopes):  # in one order: no two workers wait for each other
                await stack.enter_async_context(self._hold(scope))
            yield

    def existing_scopes(self) -> list[str]:
        """The scopes that have anything on disk, the owner first."""
        found = [OWNER]
        for kind in ("people", "groups"):
            folder = self._workspace.place(kind)
            if (entry := folder.stat()) is None or entry.kind != "folder":
                continue
            names = (f"{kind}/{entry.name}" for entry in folder.entries() if entry.kind == "folder")
            found += filter(is_scope, names)
        return found

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield the unusable files for prompts, each with the reason: all of the owner's, and in
        other scopes the files that a prompt needed."""
        owners = self.of(OWNER).store
        wanted = (*TRACKED, *owners.recent_note_paths())
        for memory in list(self._made.values()):
            store = memory.store
            for path in wanted if store is owners else list(store.problems):
                with suppress(NanobotError, OSError):  # `problems` has it
                    store.read(path)
            yield from ((memory.prefix + path, why) for path, why in list(store.problems.items()))

    def broken_lines(self) -> dict[str, int]:
        """Return the histories with unreadable lines at the last read, and the number of lines."""
        made = list(self._made.values())
        counts = ((f"{one.prefix}{HISTORY}", one.history.broken_lines()) for one in made)
        return {path: count for path, count in counts if count}

    def held(self) -> list[Memory]:
        return [self.of(scope) for scope in filter(self.is_held, self.existing_scopes())]

    def versioned_scopes(self) -> list[str]:
        """The scopes that have versions, the owner first; their files may be gone. Blocks."""
        return [prefix.rstrip("/") or OWNER for prefix in repositories(self._state)]

    def folders(self) -> list[tuple[str, Path]]:
        """Each scope that has anything on disk, and the folder of its memory."""
        return [(scope, self.of(scope).root.path / "memory") for scope in self.existing_scopes()]

    def recover(self) -> None:
        """Finish what a crash cut short in the history of each scope. Blocks; for the start."""
        for scope in self.existing_scopes():
            try:
                self.of(scope).history.recover()
            except NanobotError as error:
                logger.error("{}: the history cannot be recovered: {} {}", scope, error, error.hint)

    def recover_scope(self, scope: str, died: bool) -> None:
        """A scope comes from another worker of a team: believe what is on disk, and finish what
        that left half done if it `died`. Blocks. Raises `StorageError`."""
        memory = self.of(scope)
        memory.store.reread()
        memory.history.reread()
        if died:
            memory.versions.recover()
            memory.history.recover()
        if self._uses is not None:
            self._uses.load()

    def _make(self, scope: str) -> Memory:
        prefix = prefix_of(scope)
        versions = GitStore(
            self._state, self._workspace, self._clock, prefix, lambda: self.is_held(scope)
        )
        quiesce = partial(self._quiesce, scope) if self._quiesce else nullcontext
        on_loss = partial(self._notify_loss, scope) if self._notify_loss else None
        store = MemoryStore(versions, self._template, quiesce, on_loss, self._recent_days)
        root = Root(self._workspace.path / prefix) if prefix else self._workspace
        history = HistoryLog(self._workspace, self._clock, prefix=prefix)
        pending = Pending(store, scope, self._notify_held)
        recall = Recall(store, scope, self._budget, self._uses)
        return Memory(scope, prefix, root, store, history, pending, recall, versions)
