"""The prompt: what the model reads, built so that providers can cache it.

The system prompt and the tools of a session are frozen in its prompt cache: until the day changes,
`/new`, other tools are offered, the messages already sent change (consolidation, `/undo`, a
person's editor), or something is forgotten. Each request extends the one before byte for byte; what
changes meanwhile in memory travels in the header of the newest message.
Messages are rendered once and kept, so the cost of a turn depends on what is new in it and not on
the length of the conversation. What is dropped from that cache is rendered again from the same
files and so to the same bytes; its memory does not grow with the people who send pictures.

Between turns consolidation makes the prompt fit. A turn that calls many tools can outgrow the
window by itself; then truncation shortens tool results in the prompt, oldest first and in steps,
then what was said, and at last leaves out the oldest messages. What is stored is not touched, and
the model is told where something is missing. The system prompt and the person's newest message
always stay.

The system prompt has its most stable parts first: identity, bootstrap files, memory, skills. An
untouched template file takes no room, and a file that grew beyond its budget is cut at a line.

In front of each of the person's messages stands a header: `[today, Sat 2026-11-21 14:03 +01:00,
telegram:123]`; older ones read `[yesterday, …]`, `[3 days ago, …]`. It is a pure function of what
is stored and of today's date, so it changes at most once a day. Days are differences of civil dates
in the offset of the message's receipt, which is stored with it.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import platform
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import product
from pathlib import Path
from typing import Literal, Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.documents import BOOTSTRAP, LONG_TERM, PERSONAL
from nanobot.memory.scopes import OWNER, Memories, Scopes
from nanobot.memory.store.store import MemoryStore
from nanobot.memory.text.layout import split
from nanobot.memory.text.wording import NOTE
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import (
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.providers.tokens import IMAGE_TOKENS, estimate_tokens
from nanobot.session.session import Session
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.prompt import SkillSections, mentioned
from nanobot.templates import render
from nanobot.tooling.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system prompt. `source` is the file it came from, empty for built-in text."""

    text: str
    source: str = ""


Timestamps = Literal["relative", "absolute", "off"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LATE_MINUTES = 5
"""From then on it matters to an answer that the question waited."""
_NOTICE_LINES = 8
_NOTICE_CHARACTERS = 160


def header(stamp: datetime | None, session_key: str, today: date, style: Timestamps) -> str:
    """The header line, empty when headers are off or the time is unknown."""
    if style == "off" or stamp is None:
        return ""
    written = stamp.isoformat(" ", "minutes")
    moment = f"{_DAYS[stamp.weekday()]} {written[:16]} {written[16:]}"
    if style == "absolute":
        return f"[{moment}, {session_key}]"
    days = (today - stamp.date()).days
    label = "today" if days <= 0 else "yesterday" if days == 1 else f"{days} days ago"
    return f"[{label}, {moment}, {session_key}]"


def late_notice(stamp: datetime, now: datetime) -> str:
    """`[late: sent 3 h 5 min before this answer]` for what waited, else empty."""
    minutes = int((now - stamp).total_seconds() // 60)
    if minutes < _LATE_MINUTES:
        return ""
    days, rest = divmod(minutes, 24 * 60)
    parts = zip((days, *divmod(rest, 60)), ("days", "h", "min"), strict=True)
    words = " ".join([f"{number} {unit}" for number, unit in parts if number][:2])
    return f"[late: sent {words} before this answer]"


def memory_notice(before: str, after: str) -> str:
    """`[memory changed: added "…"; removed "…"]`: what differs between two texts, in one line.

    Empty when no line was added or removed. Long changes are cut, with a pointer to the file.
    """
    old, new = _lines(before), _lines(after)
    known, left = set(old), set(new)
    changes = [f'added "{_short(line)}"' for line in new if line not in known]
    changes += [f'removed "{_short(line)}"' for line in old if line not in left]
    if not changes:
        return ""
    if len(changes) > _NOTICE_LINES:
        more = len(changes) - _NOTICE_LINES
        changes = [*changes[:_NOTICE_LINES], f"and {more} more, see memory/MEMORY.md"]
    return f"[memory changed: {'; '.join(changes)}]"


def _lines(text: str) -> Sequence[str]:
    lines = (line.strip().removeprefix("- ").strip() for line in split(text))
    return [line for line in lines if line and not line.startswith("#")]


def _short(line: str) -> str:
    text = line.replace('"', "'")
    return text if len(text) <= _NOTICE_CHARACTERS else f"{text[: _NOTICE_CHARACTERS - 1]}…"


_CUT = "[cut here to save room: read_file {path} start_line={line} shows the rest]"
_MEMORY_CUT = (
    "[cut here to save room: read_file memory/MEMORY.md and today's notes beside it for the rest]"
)


@dataclass(frozen=True, slots=True)
class WorkspacePrompt:
    """The system prompt for one scope: its `memory` and no other.

    `rules` is where the agent's own files are, that of the owner (None: the same memory); `shown`
    are further memories whose owner lets this scope see them. `sections` give further parts
    (skills); `file_budget` is in tokens per file, `memory_budget` for each memory block."""

    memory: MemoryStore
    workspace: Path
    rules: MemoryStore | None = None
    shown: Sequence[MemoryStore] = ()
    sections: Sequence[Callable[[], str]] = ()
    file_budget: int = 4_000
    memory_budget: int = 16_000

    def parts(self) -> Sequence[Part]:
        """See `SystemPrompt`."""
        identity = render(
            "identity.md",
            system=platform.system(),
            architecture=platform.machine(),
            python=platform.python_version(),
            workspace=str(self.workspace),
        )
        parts = [Part(identity.strip())]
        files = ((name, self._bootstrap(name)) for name in BOOTSTRAP)
        parts += [Part(f"## {name}\n\n{text}", name) for name, text in files if text]
        for source in (*self.shown, self.memory):
            if memory := source.get_memory_context():
                block = cut_at_line(memory, self.memory_budget, _MEMORY_CUT)
                parts.append(Part(block, LONG_TERM))
        parts += [Part(text) for section in self.sections if (text := section())]
        return parts

    def memory_text(self) -> str | None:
        """See `SystemPrompt`."""
        try:
            return self.memory.joined(PERSONAL)
        except NanobotError as error:
            logger.warning("memory cannot be read: {}", error)
            return None

    def _bootstrap(self, name: str) -> str:
        memory = self.memory if name in PERSONAL else (self.rules or self.memory)
        try:
            if memory.is_untouched(name):
                return ""
            return cut_at_line(memory.read(name).strip(), self.file_budget, _CUT, name)
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", name, error)
            return ""


def cut_at_line(text: str, budget: int, note: str, path: str = "") -> str:
    """`text`, or as many of its first lines as fit `budget` tokens and a note where the rest is.

    `note` may name the `{path}` and the first `{line}` that is left out.
    """
    if estimate_tokens(text) <= budget:
        return text
    kept: list[str] = []
    room = budget
    for line in text.splitlines():
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, note.format(path=path, line=len(kept) + 1)])


_ESSENTIAL = frozenset({"note", "search_memory", "read_file", "cron"})
"""The tools that a model with a small window is offered."""


class PromptSources:
    """What the prompt of a conversation is made of: the memory, tools and skills of its scope.

    `budget` is the room for a prompt in tokens. With `few_tools` only the essential ones are
    offered, in few words, as a small window needs it.
    """

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
        self._tools, self._few, self._budget = tools, few_tools, budget
        self._encoded: dict[bool, tuple[int, Toolset]] = {}

    def system_of(self, session: Session) -> WorkspacePrompt:
        """The system prompt of a session."""
        mine = self._memories.of(self._scope_of(session))
        described = SkillSections(self._skills, mine.scope)
        others = [self._memories.of(scope) for scope in self._scopes.readable(mine.scope)[1:]]
        return WorkspacePrompt(
            mine.store,
            mine.root.path,
            rules=self._memories.of(OWNER).store,
            shown=[other.store for other in others],
            sections=(described.active, described.summary),
            file_budget=min(4_000, self._budget // 8),
            memory_budget=min(16_000, self._budget // 4),
        )

    def tools_of(self, session: Session) -> Toolset:
        """The tools as a session is offered them, encoded once as long as they stay."""
        scope = self._scope_of(session)
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

    def unconfirmed(self, scope: str) -> list[Message]:
        """The notes in the system prompt of a scope that foreign content may have caused."""
        stores = (self._memories.of(one).store for one in self._scopes.readable(scope))
        notes = (store.unconfirmed_notes() for store in stores)
        return [Message("user", text, origin=NOTE) for text in notes if text]

    def skills_mentioned(self, scope: str, said: str) -> str:
        """The line that names the skills whose triggers are in the person's own words."""
        try:
            names = mentioned(self._skills.in_use(scope), said) if said else ()
        except NanobotError as error:
            logger.warning("skills cannot be read: {}", error)
            return ""
        return f"[skills: {', '.join(names)}]" if names else ""

    def _scope_of(self, session: Session) -> str:
        return self._scopes.of_session(session.key, session.metadata)


_MOST_CACHES = 256


@dataclass(slots=True)
class PromptCache:
    """A session's frozen prompt and the messages rendered so far, those of seq `first` to `newest`.

    `shares` are the files in the system prompt, each with the number of its characters there.
    `memory` is what the conversation has been told of memory, `offered` what it will have been once
    the running turn is stored; `remembered` is whether the journal has the system prompt. `blind`:
    the `model` has refused the images of this conversation, so it gets none. `forgotten` is how
    often something had been forgotten when it began.
    """

    session: Session
    label: str
    revision: int
    today: date
    system: PromptMessage
    system_id: str
    shares: tuple[tuple[str, int], ...]
    memory: str | None
    offered: str | None
    fixed_tokens: int
    tools: Toolset
    forgotten: int
    remembered: bool = False
    rendered: list[PromptMessage] = field(default_factory=list)
    first: int = 0
    newest: int = 0
    has_images: bool = False
    blind: bool = False
    model: str = ""
    tokens: int = 0

    @property
    def first_seq(self) -> int:
        """The number of the oldest message in the prompt; where there is none, of the next one."""
        return self.first if self.rendered else self.session.next_seq

    def add(self, rendered: PromptMessage) -> None:
        """Keep one more."""
        self.rendered.append(rendered)
        self.tokens += rendered.tokens
        self.has_images = self.has_images or bool(rendered.images)

    def forget_rendered(self) -> None:
        """Forget what was rendered."""
        self.rendered, self.newest, self.tokens, self.has_images = [], 0, 0, False


Count = Callable[[Callable[[], str], int, int, str], Awaitable[int]]
"""Tokens of a prompt, from its text, its estimate, the budget and what tells conversations apart:
`TokenCounter.count`."""

_LEVELS = (4_000, 1_000, 200, 0)
"""Characters that remain of a message, one level after the other."""
_TARGET = 0.75
"""Down to this share of the budget, so that not every step has to shorten again."""
LEFT_OUT = "[nanobot: {} earlier messages are left out here to fit; they are stored]"


class PromptRoom:
    """Keeps prompts within `budget` tokens."""

    def __init__(self, budget: int, count: Count) -> None:
        self._budget, self._count = budget, count

    async def fit(self, prompt: Prompt) -> Prompt:
        """The prompt itself where it fits, else one that does."""
        kind = prompt.messages[1].text[:200] if len(prompt.messages) > 1 else ""
        tokens = await self._count(lambda: prompt_text(prompt), prompt.tokens, self._budget, kind)
        if tokens <= self._budget:
            return prompt
        return shortened(prompt, round(self._budget * _TARGET * prompt.tokens / max(1, tokens)))


def shortened(prompt: Prompt, target: int) -> Prompt:
    """The prompt with about `target` estimated tokens, or as near as can be."""
    messages = list(prompt.messages)
    excess = prompt.tokens - target
    question = _question(messages)
    tools = [
        at for at, message in enumerate(messages) if message.role == "tool" or message.tool_calls
    ]
    spoken = [at for at in range(len(messages)) if at not in {0, question, *tools}]
    for places, limit in product((tools, spoken), _LEVELS):
        for at in places:
            if excess <= 0:
                return replace(prompt, messages=tuple(messages), tokens=0)
            excess -= messages[at].tokens
            messages[at] = _cut(messages[at], limit)
            excess += messages[at].tokens
    if excess > 0:
        messages = _without_oldest(messages, question, excess)
    return replace(prompt, messages=tuple(messages), tokens=0)


def prompt_text(prompt: Prompt) -> str:
    """All text of a prompt, for counting."""
    texts = [message.text for message in prompt.messages]
    texts += [call.name + call.arguments for m in prompt.messages for call in m.tool_calls]
    return "\n\n".join([*texts, prompt.tools.wire.decode()])


def shorten(text: str, limit: int) -> str:
    """`text`, or its head and tail with a note between them where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    head = limit * 3 // 4
    note = f"\n[… {left_out} characters left out here to fit; the whole text is stored …]\n"
    return text[:head] + note + text[head + left_out :]


def _question(messages: Sequence[PromptMessage]) -> int:
    """Where the person's newest message stands."""
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else -1


def _cut(message: PromptMessage, limit: int) -> PromptMessage:
    text = shorten(message.text, limit)
    if len(text) >= len(message.text):
        text = message.text
    if message.role == "tool":
        return tool_message(message.tool_call_id, text)
    if message.role == "user":
        return user_message(text, () if limit < _LEVELS[0] else message.images)
    return assistant_message(text, tuple(_cut_call(call, limit) for call in message.tool_calls))


def _cut_call(call: ToolCall, limit: int) -> ToolCall:
    """A call whose arguments, still a JSON object, are no longer than about `limit`."""
    if len(call.arguments) <= max(limit, 100):
        return call
    arguments = json.dumps({"shortened to fit": shorten(call.arguments, limit)})
    return replace(call, arguments=arguments) if len(arguments) < len(call.arguments) else call


def _without_oldest(
    messages: list[PromptMessage], question: int, excess: int
) -> list[PromptMessage]:
    """The messages without the oldest ones, calls and their results going together."""
    kept = [at for at, message in enumerate(messages) if message.role == "system" or at == question]
    start = gone = 0
    for at, message in enumerate(messages):
        if excess <= 0 and message.role != "tool":
            break
        start = at + 1
        if at not in kept:
            excess -= message.tokens
            gone += 1
    note = user_message(LEFT_OUT.format(gone))
    head = [messages[at] for at in kept if at < start]
    system = [message for message in head if message.role == "system"]
    asked = [message for message in head if message.role != "system"]
    return [*system, note, *asked, *messages[start:]]


TOO_LONG = (
    "\n\n[Your message has {:,} characters, more than fits: {:,} from its middle were not read."
    " Send it in parts, or put it into a file in the workspace and say its name.]"
)
NO_PICTURES = "\n\n[The model refused a picture, so it answered without seeing any.]"
SEPARATOR = "\n\n---\n\n"
CONTINUED = "[nanobot: the beginning of this turn was put away into memory to make room]"


class SystemPrompt(Protocol):
    """Where the text of the system prompt comes from."""

    def parts(self) -> Sequence[Part]:
        """Its parts, most stable first."""
        ...

    def memory_text(self) -> str | None:
        """The long-term memory as it is now, to tell what changed since; None where it cannot be
        read."""
        ...


class ContextBuilder:
    """Builds prompts. `system_of` gives the system prompt of a session: each has the memory of its
    own scope; `tools_of` gives the tools on offer there: other ones begin a new prompt cache.
    `load_image` gives base64 data and MIME type of a stored image, or None; `max_message_tokens` is
    where a single message is shortened in the prompt (never in storage). `forgotten` counts how
    often something left memory for good: no prompt holds it then, nor tells that it went."""

    def __init__(
        self,
        system_of: Callable[[Session], SystemPrompt],
        tools_of: Callable[[Session], Toolset],
        clock: Clock,
        *,
        timestamps: Timestamps = "relative",
        load_image: Callable[[str], Image | None] = lambda _: None,
        max_message_tokens: int = 30_000,
        forgotten: Callable[[], int] = lambda: 0,
    ) -> None:
        self._system_of = system_of
        self._tools_of = tools_of
        self._clock = clock
        self._timestamps = timestamps
        self._load = load_image
        self._max_characters = max_message_tokens * 2
        self._forgotten = forgotten
        self._caches: OrderedDict[str, PromptCache] = OrderedDict()

    def build(self, session: Session, new: Sequence[Message] = ()) -> Prompt:
        """The prompt for a turn: system, history, and the turn's own messages so far."""
        cache = self.cache_of(session)
        history = self._catch_up(cache)
        own = [self.render(cache, message) for message in new]
        tokens = cache.fixed_tokens + cache.tokens + sum(message.tokens for message in own)
        return Prompt((cache.system, *history, *own), cache.tools, tokens)

    def cache_of(self, session: Session) -> PromptCache:
        """The session's prompt cache; a new one where the old no longer holds."""
        today = self._clock.now().date()
        label, model = str(session.epoch), str(session.metadata.get("model", ""))
        tools = self._tools_of(session)
        cache = self._caches.get(session.key)
        if (
            cache is None
            or cache.session is not session
            or cache.revision != session.revision
            or cache.label != label
            or cache.today != today
            or cache.tools.wire != tools.wire
            or cache.forgotten != self._forgotten()
            or (cache.blind and cache.model != model)
        ):
            cache = self._new_cache(session, label, today, tools)
            cache.model = model
        self._caches[session.key] = cache
        self._caches.move_to_end(session.key)
        if len(self._caches) > _MOST_CACHES:
            self._caches.popitem(last=False)
        return cache

    def news(self, session: Session) -> str:
        """What changed in memory since the conversation was told, for the newest message's header.

        The same until `told`: a turn that has to wait says it when it runs.
        """
        cache = self.cache_of(session)
        now = self._system_of(session).memory_text()
        cache.offered = cache.memory if now is None else now
        if cache.memory is None or cache.offered is None or cache.offered == cache.memory:
            return ""
        return memory_notice(cache.memory, cache.offered)

    def told(self, session: Session) -> None:
        """The news are in the conversation now."""
        cache = self._caches.get(session.key)
        if cache is not None and cache.session is session:
            cache.memory = cache.offered

    def render(self, cache: PromptCache, message: Message) -> PromptMessage:
        """A message in the form it is sent; the same bytes every time within one cache."""
        text = shorten(message.content, self._max_characters)
        if message.role == "assistant":
            return assistant_message(text, message.tool_calls)
        if message.role == "tool":
            return tool_message(message.tool_call_id, text)
        lines = [message.notice, text]
        if message.from_person:
            stamp = header(message.timestamp, cache.session.key, cache.today, self._timestamps)
            lines.insert(0, stamp)
        images = () if cache.blind else tuple(filter(None, map(self._load, message.media)))
        return user_message("\n".join(filter(None, lines)), images)

    def remarks(self, cache: PromptCache, own: Sequence[Message]) -> str:
        """What is said under the answer to a turn's `own` messages of which the model has not read
        everything."""
        text, length = "", len(own[0].content)
        if length > self._max_characters:
            text += TOO_LONG.format(length, length - self._max_characters)
        if cache.blind and any(self._load(name) for message in own for name in message.media):
            text += NO_PICTURES
        return text

    def fixed_tokens(self, session: Session) -> int:
        """About how many tokens the system prompt and the tools take."""
        return self.cache_of(session).fixed_tokens

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """About how many tokens the session's prompt takes now, with these messages after it."""
        cache = self.cache_of(session)
        self._catch_up(cache)
        return cache.fixed_tokens + cache.tokens + sum(self._cost(cache, m) for m in coming)

    def leave_out_images(self, session: Session, new: Sequence[Message]) -> bool:
        """Send no images from now on, of the conversation or the turn's `new` messages, until the
        cache ends; False where there are none."""
        cache = self.cache_of(session)
        history = self._catch_up(cache)
        images = (
            image for m in (*history, *(self.render(cache, m) for m in new)) for image in m.images
        )
        if next(images, None) is None:
            return False
        cache.blind = True
        cache.forget_rendered()
        return True

    def show_images(self, session: Session) -> None:
        """Send images again."""
        cache = self.cache_of(session)
        cache.blind = False
        cache.forget_rendered()

    def cost(self, session: Session, message: Message) -> int:
        """About how many tokens one message of the session takes in its prompt."""
        return self._cost(self.cache_of(session), message)

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """All text of the prompt that `tokens` estimates, for counting."""
        return prompt_text(self.build(session, coming))

    def _new_cache(self, session: Session, label: str, today: date, tools: Toolset) -> PromptCache:
        forgotten = self._forgotten()  # first: what goes meanwhile ends this cache as well
        system = self._system_of(session)
        parts = tuple(system.parts())
        text = SEPARATOR.join(part.text for part in parts)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass") + tools.wire)
        memory = system.memory_text()
        message = system_message(text)
        return PromptCache(
            session,
            label,
            session.revision,
            today,
            message,
            digest.hexdigest()[:16],
            tuple((part.source, len(part.text)) for part in parts if part.source),
            memory,
            memory,
            message.tokens + tools.tokens,
            tools,
            forgotten,
        )

    def _catch_up(self, cache: PromptCache) -> list[PromptMessage]:
        """Render what was added since the last time."""
        if cache.session.next_seq == cache.newest + 1:
            return cache.rendered
        history = cache.session.get_history()
        new = history[bisect.bisect_right(history, cache.newest, key=lambda m: m.seq) :]
        if new and not cache.rendered:
            cache.first = new[0].seq
            if new[0].role != "user":
                cache.add(user_message(CONTINUED))
        for message in new:
            cache.add(self.render(cache, message))
            cache.newest = message.seq
        if cache.has_images:  # of all conversations, one keeps its pictures in memory
            for other in self._caches.values():
                if other is not cache and other.has_images:
                    other.forget_rendered()
        return cache.rendered

    def _cost(self, cache: PromptCache, message: Message) -> int:
        """What a message will take, without loading its images for that."""
        bare = replace(message, media=()) if message.media else message
        return self.render(cache, bare).tokens + IMAGE_TOKENS * len(message.media)
