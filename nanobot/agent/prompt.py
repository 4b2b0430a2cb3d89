"""The prompt, built so that providers can cache it.

The system prompt and the tools of a session are frozen in its prompt cache. A new cache begins with
a new day, `/new`, other tools, a change of messages already sent (consolidation, `/undo`, an
editor), or a loss from memory. Each request extends the previous one byte for byte. Later changes
in memory go into the header of the newest message. Messages are rendered once and kept, so the cost
of a turn depends on its new messages, not on the length of the conversation. Messages dropped from
the cache are rendered again to the same bytes.

The system prompt has its most stable parts first: identity, bootstrap files, memory, skills. An
untouched template file is left out. Facts beyond their budget are chosen by relevance
(`memory/recall.py`), and any other file is cut at a line.

Each message of a person has a header. On the first message, and the first of another day or offset,
it is `[today, Sat 2026-11-21 14:03 +01:00, telegram:123]` (older: `[yesterday, …]`, `[3 days ago,
…]`). The others only have what is new: `[14:07]`, or nothing within the same minute. Headers are a
pure function of the stored messages and today's date, so they change at most once a day. Days are
differences of civil dates in the offset of the message's receipt, which is stored with it. The
system prompt ends with the date, for shortened requests.

System prompt, headers and cache are in one file because together they keep the bytes equal."""

from __future__ import annotations

import hashlib
import platform
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.agent.media import MediaStore
from nanobot.agent.truncation import prompt_text, truncate
from nanobot.bus.events import NANOBOT
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.documents import BOOTSTRAP, LONG_TERM, PERSONAL
from nanobot.memory.guard import memory_notice
from nanobot.memory.recall import PERSON, cut_at_line
from nanobot.memory.scopes import OWNER, Memories, Scopes
from nanobot.memory.taint import NOTE
from nanobot.messages import Message
from nanobot.providers.port import (
    IMAGE_TOKENS,
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.session.session import Session
from nanobot.skills.folder import Skill
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.prompt import Triggers, render_active, render_summary
from nanobot.templates import render
from nanobot.text import duration, one_line
from nanobot.tooling.registry import ToolRegistry


class PromptPart(Struct, frozen=True):
    """Part of the system prompt. `source` is its file, or "" for built-in text."""

    text: str
    source: str = ""


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LATE = timedelta(minutes=5)
"""Delay from which an answer should know that its question waited."""


def header(stamp: datetime | None, previous: datetime | None, session_key: str, today: date) -> str:
    """Return the header of a message that follows one of the time `previous`, or "" if the time is
    unknown or the minute is the same."""
    if stamp is None:
        return ""
    day = stamp.date(), stamp.utcoffset()
    if previous and day == (previous.date(), previous.utcoffset()):
        minute = (stamp.hour, stamp.minute)
        return "" if minute == (previous.hour, previous.minute) else f"[{stamp:%H:%M}]"
    written = stamp.isoformat(" ", "minutes")
    moment = f"{_DAYS[stamp.weekday()]} {written[:16]} {written[16:]}"
    days = (today - stamp.date()).days
    label = "today" if days <= 0 else "yesterday" if days == 1 else f"{days} days ago"
    return f"[{label}, {moment}, {session_key}]"


def last_stamp(messages: Sequence[Message], before: datetime | None) -> datetime | None:
    """Return the time of the last header before these messages end."""
    stamps = (one.timestamp for one in reversed(messages) if one.from_person and one.timestamp)
    return next(stamps, before)


def late_notice(waited: timedelta) -> str:
    """Return `[late: sent 3 h 5 min before this answer]`."""
    minutes = int(waited.total_seconds() // 60)
    return f"[late: sent {duration(60 * minutes)} before this answer]"


_CUT = "[cut here to save room: read_file {path} start_line={line} shows the rest]"

_ESSENTIAL = frozenset({"note", "search_memory", "read_file", "cron"})
"""Tools offered to a model with a small window."""


_RULES = tuple(name for name in BOOTSTRAP if name not in PERSONAL)

_SkillsInUse = tuple[int, tuple[Skill, ...]]
"""Version of all skills, and the skills of a scope."""


class ScopedSources:
    """The memory, tools and skills of a conversation's scope, for its prompt.

    `budget` is the room for a prompt in tokens. With `few_tools` only the essential tools are
    offered, with short descriptions, for a small window."""

    def __init__(
        self,
        memories: Memories,
        scopes: Scopes,
        skills: SkillsLoader,
        tools: ToolRegistry,
        *,
        budget: int,
        few_tools: bool = False,
    ) -> None:
        self._memories, self._scopes, self._skills = memories, scopes, skills
        self._tools, self._few = tools, few_tools
        self._file_budget = min(4_000, budget // 8)
        self._encoded: dict[bool, tuple[int, Toolset]] = {}
        self._shown: dict[str, tuple[_SkillsInUse, Sequence[PromptPart], Triggers]] = {}
        """Rendered skills by scope."""
        self._parts: dict[str, tuple[object, Sequence[PromptPart]]] = {}
        """Parts by scope, each with the texts that they were made of."""

    @property
    def forget_count(self) -> int:
        """Number of times that memory has forgotten something for good. No prompt built after that
        contains it, or a notice that it went."""
        return self._memories.forgotten

    def scope_of(self, session: Session) -> str:
        return self._scopes.of_session(session.key, session.metadata)

    def parts(self, scope: str, memory: str | None) -> Sequence[PromptPart]:
        """Return the parts of the system prompt, most stable first. The rule files are the owner's.
        Other memories are shown if their owner lets this scope read them. The parts are the same
        objects until a text changes. `memory` is the present `memory_text`."""
        shown, rules = self._skills_of(scope), self._memories.of(OWNER).store
        mine, *others = map(self._memories.of, self._scopes.readable(scope))
        try:
            texts = [shown, memory, mine.recall.basis(), *map(rules.read, _RULES)]
            texts += [(one.recall.basis(), one.store.memory_text()) for one in others]
        except NanobotError:  # reported with the part
            memory = None
        if memory is None:
            return self._build_parts(scope, shown[1])
        known = self._parts.get(scope)
        if known is None or known[0] != texts:
            known = self._parts[scope] = texts, self._build_parts(scope, shown[1])
        return known[1]

    def _build_parts(self, scope: str, skills: Sequence[PromptPart]) -> Sequence[PromptPart]:
        mine, rules = self._memories.of(scope), self._memories.of(OWNER)
        identity = render(
            "identity.md",
            system=platform.system(),
            architecture=platform.machine(),
            python=platform.python_version(),
            workspace=str(mine.root.path) if scope == OWNER else "your person's own folder",
        )
        parts = [PromptPart(identity.strip())]
        for name in BOOTSTRAP:
            memory = mine if name in PERSONAL else rules
            try:
                if name == PERSON:
                    text = memory.recall.person_part()
                else:
                    text = memory.store.read_learned(name)
                    text = cut_at_line(text, self._file_budget, _CUT, name)
            except NanobotError as error:
                logger.warning("{} cannot be read: {}", name, error)
                continue
            if text:  # an untouched template has none
                parts.append(PromptPart(f"## {name}\n\n{text}", name))
        others = (self._memories.of(other) for other in self._scopes.readable(scope)[1:])
        facts = (memory.recall.memory_part() for memory in (*others, mine))
        parts += (PromptPart(block, LONG_TERM) for block in filter(None, facts))
        return (*parts, *skills)

    def memory_text(self, scope: str) -> str | None:
        """Return the present long-term memory, to report later changes, or None if it can't be
        read."""
        try:
            return self._memories.of(scope).store.memory_text()
        except NanobotError as error:
            logger.warning("memory cannot be read: {}", error)
            return None

    def tools(self, scope: str) -> Toolset:
        """Return the tools offered to a scope. They are encoded once per version."""
        version, offered = self._encoded.get(scope == OWNER, (-1, Toolset((), b"")))
        if version != self._tools.version:
            specs = self._tools.specs(scope)
            if self._few:
                few = (spec for spec in specs if spec.name in _ESSENTIAL)
                specs = tuple(
                    replace(spec, description=spec.description.partition(". ")[0]) for spec in few
                )
            offered = Toolset.of(specs)
            self._encoded[scope == OWNER] = (self._tools.version, offered)
        return offered

    def read_unconfirmed(self, scope: str) -> list[Message]:
        """Return the notes in a scope's system prompt that untrusted content may have caused."""
        stores = (self._memories.of(one).store for one in self._scopes.readable(scope))
        notes = (store.read_unconfirmed_notes() for store in stores)
        return [Message("user", text, origin=NOTE) for text in notes if text]

    def skills_mentioned(self, scope: str, said: str) -> str:
        """Return the line that names the skills whose triggers are in the person's own words
        `said`. The skills are from the last system prompt, unless the owner has changed them
        since."""
        known = self._shown.get(scope)
        if known is None or known[0][0] != self._skills.version:
            known = self._skills_of(scope)
        names = known[-1].match(said) if said else ()
        return f"[skills: {', '.join(names)}]" if names else ""

    def _skills_of(self, scope: str) -> tuple[_SkillsInUse, Sequence[PromptPart], Triggers]:
        """Return the skills in use, read from disk."""
        version, skills = self._skills.version, tuple[Skill, ...]()
        try:
            skills = self._skills.in_use(scope)
        except NanobotError as error:
            logger.warning("skills cannot be read: {}", error)
        known = self._shown.get(scope)
        if known is None or known[0] != (version, skills):
            sections = filter(None, (render_active(skills), render_summary(skills)))
            parts = tuple(map(PromptPart, sections))
            known = self._shown[scope] = (version, skills), parts, Triggers(skills)
        return known


_MOST_CACHES = 256


class SystemPrompt(Struct):
    """A system prompt with its tools, shared by the chats that begin with them."""

    parts: Sequence[PromptPart]
    tools: Toolset
    message: PromptMessage
    id: str
    shares: tuple[tuple[str, int], ...]
    """Files in it, each with its length in characters."""
    remembered: bool = False
    """The journal has it."""

    @property
    def tokens(self) -> int:
        return self.message.tokens + self.tools.tokens


class PromptCache(Struct):
    """Frozen prompt of a session and its rendered messages, from seq `first` to `newest`."""

    session: Session
    holds: tuple[object, ...]
    """Epoch, revision, day, tools and count of forgotten facts. A change ends the cache."""
    scope: str
    today: date
    system: SystemPrompt
    memory: str | None
    """Memory text that the conversation knows."""
    offered: str | None
    """Memory text that it knows once the running turn is stored."""
    model: str
    rendered: list[PromptMessage] = field(default_factory=list)
    first: int = 0
    newest: int = 0
    stamp: datetime | None = None
    """Time of the last header."""
    has_images: bool = False
    blind: bool = False
    """`model` has rejected an image, so this conversation gets none."""
    tokens: int = 0

    def add(self, shown: Sequence[PromptMessage], newest: int) -> None:
        """Add rendered messages, up to the seq `newest`."""
        self.rendered += shown
        self.newest = newest
        self.tokens += sum(message.tokens for message in shown)
        self.has_images = self.has_images or any(message.images for message in shown)

    def forget_rendered(self) -> None:
        self.rendered, self.newest, self.tokens, self.has_images = [], 0, 0, False
        self.stamp = None


NO_PICTURES = "\n\n[The model rejected an image, so it answered without seeing any images.]"
SEPARATOR = "\n\n---\n\n"
CONTINUED = "[nanobot: the beginning of this turn was consolidated into memory to make room]"


class ContextBuilder:
    """Builder of prompts out of `sources`. `media` holds the images. A message is shortened to
    `max_message_tokens` in the prompt, never in storage."""

    def __init__(
        self,
        sources: ScopedSources,
        clock: Clock,
        *,
        media: MediaStore | None = None,
        max_message_tokens: int = 30_000,
    ) -> None:
        self._sources, self._clock = sources, clock
        self._media = media
        self._max_characters = max_message_tokens * 2
        self._caches: OrderedDict[str, PromptCache] = OrderedDict()
        self._newest: SystemPrompt | None = None
        """Last system prompt, shared by all chats that begin with the same parts."""

    def build(self, session: Session, new: Sequence[Message] = ()) -> Prompt:
        """Return the prompt for a turn: system, history, and the turn's `new` messages."""
        return self.prompt(self.cache_of(session), new)

    def prompt(self, cache: PromptCache, new: Sequence[Message] = ()) -> Prompt:
        """Return the prompt for a turn with a session's cache."""
        history = self._catch_up(cache)
        own = list(map(self.renderer(cache), new))
        system = cache.system
        tokens = system.tokens + cache.tokens + sum(message.tokens for message in own)
        return Prompt((system.message, *history, *own), system.tools, tokens)

    def cache_of(self, session: Session) -> PromptCache:
        """Return the session's prompt cache, a new one if the old one is no longer valid."""
        today, model = self._clock.now().date(), str(session.metadata.get("model", ""))
        scope = self._sources.scope_of(session)
        tools, forgotten = self._sources.tools(scope), self._sources.forget_count
        holds = (session.epoch, session.revision, today, tools.wire, forgotten)
        cache = self._caches.get(session.key)
        holds_still = cache and cache.session is session and cache.holds == holds
        if cache is None or not holds_still or (cache.blind and cache.model != model):
            memory = self._sources.memory_text(scope)
            system = self._build_system(scope, memory, today, tools)
            cache = PromptCache(session, holds, scope, today, system, memory, memory, model)
        self._caches[session.key] = cache
        self._caches.move_to_end(session.key)
        if len(self._caches) > _MOST_CACHES:
            self._caches.popitem(last=False)
        return cache

    def _build_system(
        self, scope: str, memory: str | None, today: date, tools: Toolset
    ) -> SystemPrompt:
        date_part = PromptPart(f"Today is {_DAYS[today.weekday()]} {today.isoformat()}.")
        parts, known = (*self._sources.parts(scope, memory), date_part), self._newest
        if known is None or known.parts != parts or known.tools.wire != tools.wire:
            message = system_message(SEPARATOR.join(part.text for part in parts))
            digest = hashlib.sha256(message.text.encode("utf-8", "surrogatepass") + tools.wire)
            shares = tuple((part.source, len(part.text)) for part in parts if part.source)
            known = SystemPrompt(parts, tools, message, digest.hexdigest()[:16], shares)
            self._newest = known
        return known

    def forget(self, session: Session) -> None:
        """Drop the cache of a finished conversation."""
        self._caches.pop(session.key, None)

    def news(self, session: Session) -> str:
        """Return the changes in memory since the conversation's last notice, for the newest
        message's header. They stay the same until `commit_news`, so that a postponed turn reports
        them later."""
        known, cache = self._caches.get(session.key), self.cache_of(session)
        if cache is not known:  # it has just read memory
            return ""
        now = self._sources.memory_text(cache.scope)
        cache.offered = cache.memory if now is None else now
        if cache.memory is None or cache.offered is None or cache.offered == cache.memory:
            return ""
        return memory_notice(cache.memory, cache.offered)

    def commit_news(self, session: Session) -> None:
        cache = self._caches.get(session.key)
        if cache is not None and cache.session is session:
            cache.memory = cache.offered

    def renderer(
        self, cache: PromptCache, before: Sequence[Message] = ()
    ) -> Callable[[Message], PromptMessage]:
        """Return a function that renders, one after another, the messages after the cache and
        `before`."""
        previous = last_stamp(before, cache.stamp)

        def render(message: Message) -> PromptMessage:
            nonlocal previous
            shown = self._render(cache, message, previous)
            previous = last_stamp((message,), previous)
            return shown

        return render

    def _render(
        self, cache: PromptCache, message: Message, previous: datetime | None
    ) -> PromptMessage:
        """Return a message for the prompt, with the same bytes every time within one cache."""
        text = message.text
        if len(text) > self._max_characters:
            text = truncate(text, self._max_characters)
        if message.role == "assistant":
            return assistant_message(text, message.tool_calls, message.provider_data)
        if message.role == "tool":
            return tool_message(message.tool_call_id, text)
        if message.about:
            text = f"[{NANOBOT}: {message.about}: {one_line(text, None)}]"
        lines = [message.notice, text]
        if message.from_person:
            key, today = cache.session.key, cache.today
            lines.insert(0, header(message.timestamp, previous, key, today))
        images = self._images(message) if message.media and not cache.blind else ()
        return user_message("\n".join(filter(None, lines)), images)

    def _images(self, message: Message) -> tuple[Image, ...]:
        media = self._media
        return (
            tuple(filter(None, (media.image(one.file) for one in message.media))) if media else ()
        )

    def has_images(self, messages: Sequence[Message]) -> bool:
        return any(map(self._images, messages))

    def count_fixed_tokens(self, session: Session) -> int:
        """Estimate the tokens of the system prompt and the tools."""
        return self.cache_of(session).system.tokens

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """Estimate the tokens of the session's prompt with the messages `coming`."""
        cache = self.cache_of(session)
        self._catch_up(cache)
        return cache.system.tokens + cache.tokens + sum(self._cost(cache, m) for m in coming)

    def cost(self, session: Session, message: Message) -> int:
        """Estimate the tokens of one message in the session's prompt. Loads no image."""
        return self._cost(self.cache_of(session), message)

    def _cost(self, cache: PromptCache, message: Message) -> int:
        bare = replace(message, media=()) if message.media else message
        return self._render(cache, bare, cache.stamp).tokens + IMAGE_TOKENS * len(message.media)

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """Return all text of the prompt that `tokens` estimates, for counting."""
        return prompt_text(self.build(session, coming))

    def leave_out_images(self, session: Session, new: Sequence[Message]) -> bool:
        """Send no more images of the conversation or the `new` messages, until the cache ends.
        Return False if there are none."""
        cache = self.cache_of(session)
        shown = (*self._catch_up(cache), *map(self.renderer(cache), new))
        if not any(message.images for message in shown):
            return False
        cache.blind = True
        cache.forget_rendered()
        return True

    def show_images(self, session: Session) -> None:
        cache = self.cache_of(session)
        if cache.blind:
            cache.blind = False
            cache.forget_rendered()

    def _catch_up(self, cache: PromptCache) -> list[PromptMessage]:
        """Render the messages added since the last call."""
        if cache.session.next_seq == cache.newest + 1:
            return cache.rendered
        new = cache.session.get_history(0, after=cache.newest)
        shown = list(map(self.renderer(cache), new))
        cache.stamp = last_stamp(new, cache.stamp)
        if new and not cache.rendered:
            cache.first = new[0].seq
            if new[0].role != "user":
                shown.insert(0, user_message(CONTINUED))
        if new:
            cache.add(shown, new[-1].seq)
        if cache.has_images:  # only one conversation keeps pictures in memory
            for other in self._caches.values():
                if other is not cache and other.has_images:
                    other.forget_rendered()
        return cache.rendered
