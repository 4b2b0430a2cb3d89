"""The scope of a message or a conversation, and the memory that belongs to it.

A scope is `owner`, `people/<channel>_<id>` or `groups/<channel>_<chat>`. Ids are encoded like
session ids, so that a scope with any stranger's name is one name in one folder. The owner's memory
is in the workspace itself, every other scope's in the folder of its name."""

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
)
from nanobot.channel import account_of
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
    """Return True if `name` is a scope's name, and so safe as a folder."""
    return name == OWNER or _SCOPE.fullmatch(name) is not None


def is_group(scope: str) -> bool:
    return scope.startswith("groups/")


def prefix_of(scope: str) -> str:
    """Return the folder of a scope's files in the workspace: "" for the owner, or
    `people/telegram_7/`.

    Raise `ValueError` if the name is not a scope's."""
    if not is_scope(scope):
        raise ValueError(f"{scope!r} is not a scope")
    return "" if scope == OWNER else f"{scope}/"


def chat_of(key: str, metadata: Mapping[str, JsonValue]) -> str:
    """Return the id of a conversation's chat, without its thread: from `metadata`, or else from the
    key."""
    chat = metadata.get("chat")
    if isinstance(chat, str) and chat:
        return chat
    chat = key.partition(":")[2]
    return Address.of(key).chat_id if ":" in chat else chat


class OthersConversation(NanobotError):
    """A sender tried to write in a conversation of another scope."""

    def __init__(self) -> None:
        super().__init__("You can't write in this conversation because it belongs to someone else.")


class Scopes:
    """The scope of each sender, message and session.

    `is_owner` takes a channel and a sender id. It is called each time, because a sender may become
    the owner while nanobot runs. On `cli` everyone is the owner. Each of `identities` lists the
    `channel:sender` accounts of one person. With `groups_see_owner`, groups may also read the
    owner's memory."""

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
        """Return True if this sender, or an identity linked to it, is the owner."""
        return self.of_sender(channel, sender_id) == OWNER

    def is_owners(self, inbound: InboundMessage) -> bool:
        """Return True if only the owner reads the chat of a message."""
        return self.of_message(inbound, inbound.session_key, {}) == OWNER

    @property
    def accounts(self) -> Mapping[str, Sequence[str]]:
        """The accounts of each person with several, by scope."""
        named = [names for names in self._linked.values() if ":" in names[0]]
        return {self.of_sender(*names[0].split(":", 1)): names for names in named}

    def of_message(
        self, inbound: InboundMessage, key: str, metadata: Mapping[str, JsonValue]
    ) -> str:
        """Return the scope that a message speaks for. A job names its scope. nanobot's own notes
        belong to the scope of their conversation."""
        if inbound.origin.scope and is_scope(inbound.origin.scope):
            return inbound.origin.scope
        if inbound.session_override and inbound.sender_id == NANOBOT:
            return self.of_session(key, metadata)
        if inbound.is_group:
            return _group(inbound.channel, inbound.chat_id)
        return self.of_sender(inbound.channel, inbound.sender_id)

    def expect_own(
        self, inbound: InboundMessage, key: str, metadata: Mapping[str, JsonValue]
    ) -> str:
        """Admit a message to the conversation `key`. Return "" if the conversation is the speaker's
        own, or new. If the chat now belongs to the speaker but the conversation does not, return
        its scope: the conversation must be set aside for it.

        A conversation belongs to one scope from its first message on. Raise `OthersConversation` if
        the speaker chose a conversation of another scope."""
        chose = bool(inbound.session_override) or inbound.channel == PAGE
        owner = self.owner_of(key, metadata)
        if inbound.session_override and not inbound.origin.scope and not owner:
            if key.partition(":")[0] in (PAGE, API):  # others choose these names
                raise OthersConversation
            owner = self.of_session(key, metadata)
        if owner in ("", self.of_message(inbound, key, metadata)):
            return ""
        if chose:
            raise OthersConversation
        return owner

    def owner_of(self, key: str, metadata: Mapping[str, JsonValue]) -> str:
        """Return the scope that a conversation belongs to, or "" before its first message."""
        is_begun = not metadata.keys().isdisjoint(("scope", "sender", "group"))
        return self.of_session(key, metadata) if is_begun else ""

    def of_session(self, key: str, metadata: Mapping[str, JsonValue]) -> str:
        """Return the scope of a conversation.

        `metadata` may have `scope` (which then counts), `sender`, `group` (true for a group) and
        `chat`. Missing values are read from the key: a private chat is named after its person."""
        said = metadata.get("scope")
        if isinstance(said, str) and is_scope(said):
            return said
        channel, chat = key.partition(":")[0], chat_of(key, metadata)
        if metadata.get("group") is True:
            return _group(channel, chat)
        sender = metadata.get("sender")
        return self.of_sender(channel, sender if isinstance(sender, str) else chat)

    def readable(self, scope: str) -> tuple[str, ...]:
        """Return the scopes whose memory `scope` may read, its own first."""
        sees_owner = self._groups_see_owner and is_group(scope)
        return (scope, OWNER) if sees_owner else (scope,)

    def of_sender(self, channel: str, sender_id: str) -> str:
        """Return the scope of a sender, or of the account that a program names with the channel
        `API`."""
        channel, sender_id = account_of(channel, sender_id)
        account = f"{channel}:{sender_id}"
        names = self._linked.get(account)
        if names is None:  # the usual case, without a loop: a page checks ten thousand
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
    """The memory of one scope.

    `prefix` is its folder in the workspace, and `root` that folder for the file tools of the
    scope's turns. The folder exists after the first write."""

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
        """Number of times that something left memory for good. Texts read before are then stale."""
        self._hold: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
        self.is_held: Callable[[str], bool] = lambda _: True
        """Returns True if this process may change the scope's files now."""
        self._made: dict[str, Memory] = {}
        self._making = threading.Lock()

    def of(self, scope: str) -> Memory:
        """Return the memory of a scope, always the same object. Raise `ValueError` if there is no
        such scope."""
        with self._making:
            if scope in self._made:
                return self._made[scope]
            prefix, workspace = prefix_of(scope), self._workspace
            versions = GitStore(
                self._state, workspace, self._clock, prefix, lambda: self.is_held(scope)
            )
            quiesce = partial(self._quiesce, scope) if self._quiesce else nullcontext
            on_loss = partial(self._notify_loss, scope) if self._notify_loss else None
            store = MemoryStore(versions, self._template, quiesce, on_loss, self._recent_days)
            root = Root(workspace.path / prefix) if prefix else workspace
            history = HistoryLog(workspace, self._clock, prefix=prefix)
            pending = Pending(store, scope, self._notify_held)
            recall = Recall(store, scope, self._budget, self._uses)
            made = Memory(scope, prefix, root, store, history, pending, recall, versions)
            return self._made.setdefault(scope, made)

    def share(
        self, hold: Callable[[str], AbstractAsyncContextManager[None]], has: Callable[[str], bool]
    ) -> None:
        """Share the files with other workers. `hold` reserves a scope while it is entered, `has`
        checks whether this worker holds it now."""
        self._hold, self.is_held = hold, has

    def holding(self, scope: str) -> AbstractAsyncContextManager[None]:
        """Return a context for changes of a scope's files that no message of the scope asked for.
        Entering it raises `NanobotError` if another worker keeps the scope. The method may be
        passed on before `share`."""
        return self._hold(scope)

    @asynccontextmanager
    async def holding_each(self, scopes: Iterable[str]) -> AsyncIterator[None]:
        """Hold all of these scopes."""
        async with AsyncExitStack() as stack:
            for scope in sorted(scopes):  # a fixed order prevents deadlocks between workers
                await stack.enter_async_context(self._hold(scope))
            yield

    def list_scopes(self) -> list[str]:
        """Return the scopes with anything on disk, the owner first."""
        found = [OWNER]
        for kind in ("people", "groups"):
            folder = self._workspace.place(kind)
            if (entry := folder.stat()) is None or entry.kind != "folder":
                continue
            names = (f"{kind}/{entry.name}" for entry in folder.entries() if entry.kind == "folder")
            found += filter(is_scope, names)
        return found

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield the unusable prompt files with the reasons: all of the owner's, and other scopes'
        files if a prompt needed them."""
        owners = self.of(OWNER).store
        wanted = (*TRACKED, *owners.recent_note_paths())
        for memory in list(self._made.values()):
            store = memory.store
            for path in wanted if store is owners else list(store.problems):
                with suppress(NanobotError, OSError):  # `problems` has the reason
                    store.read(path)
            yield from ((memory.prefix + path, why) for path, why in list(store.problems.items()))

    def count_broken_lines(self) -> dict[str, int]:
        """Count the unreadable lines of each history at the last read, by path."""
        made = list(self._made.values())
        counts = ((f"{one.prefix}{HISTORY}", one.history.count_broken_lines()) for one in made)
        return {path: count for path, count in counts if count}

    def list_held(self) -> list[Memory]:
        return [self.of(scope) for scope in filter(self.is_held, self.list_scopes())]

    def list_versioned_scopes(self) -> list[str]:
        """Return the scopes with versions, the owner first. Their files may be gone. Blocks."""
        return [prefix.rstrip("/") or OWNER for prefix in repositories(self._state)]

    def folders(self) -> list[tuple[str, Path]]:
        """Return each scope with anything on disk, and the folder of its memory."""
        return [(scope, self.of(scope).root.path / "memory") for scope in self.list_scopes()]

    def recover(self) -> None:
        """Repair each scope's history after a crash, at the start. Blocks."""
        for scope in self.list_scopes():
            try:
                self.of(scope).history.recover()
            except NanobotError as error:
                logger.error("{}: the history cannot be recovered: {} {}", scope, error, error.hint)

    def recover_scope(self, scope: str, died: bool) -> None:
        """Take over a scope from another worker: reread the files, and finish its incomplete writes
        if it `died`. Blocks. Raise `StorageError`."""
        memory = self.of(scope)
        memory.store.reread()
        memory.history.reread()
        if died:
            memory.versions.recover()
            memory.history.recover()
        if self._uses is not None:
            self._uses.load()
