"""The agent's tools that write to memory, the gate for its file tools, and marks to keep.

The caller determines whose memory is written. If the prompt contains untrusted content, a note
names the possible sources, and the model's own wordings need approval, whether they add, reword or
remove. Lines that the person wrote are exempt: the model names one, code copies all of it, and it
is added at once.

`write_file` and `edit_file` take a path. With untrusted content in the prompt they can't change the
files that decide future behaviour. They never write nanobot's own files (history, pending and
retired facts)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from nanobot.bus.events import Quote
from nanobot.bus.sql_journal import Journal
from nanobot.commands import CommandCall
from nanobot.errors import CallRefused, PathRefused
from nanobot.memory.documents import FACTS, LONG_TERM, PENDING, RETIRED, text_of
from nanobot.memory.guard import (
    fact_lines,
    find_line,
    find_lost_facts,
    summary_of_change,
    with_words,
    without_bullet,
)
from nanobot.memory.line_changes import Operation, find_heading, operations_between
from nanobot.memory.model_text import clean_line, clean_text, junk_reason
from nanobot.memory.pending import BY_NANOBOT
from nanobot.memory.scopes import OWNER, Memories, is_scope
from nanobot.memory.similarity import most_similar
from nanobot.memory.taint import days_of_quotations, is_foreign, quotation
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.text import one_line, shorten
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

BeforeChange = Callable[[str, str, bytes | None, bytes], None]
"""Keeps the content of a file before a turn changes it: the turn, the path, the old and the new."""

_NEAR = 0.3
_SHOWN, _LONGEST, _LINES = 300, 1_000, 40
_QUOTED = 80  # characters of a quoted text that identify its message
# Limits on the comparison of new lines: characters of the latest messages, and lines of a file.
_COMPARED, _MOST_COMPARED = 60_000, 200
_PATHS = {"MEMORY.md": LONG_TERM}
# Files of facts. The other files are rules that apply from then on, and one wish is not a rule.
_QUOTABLE = frozenset({"MEMORY.md", "USER.md"})

_KEPT_BY_NANOBOT = frozenset({PENDING, RETIRED, "memory/HISTORY.md"})
_KEPT_PREFIXES = ("memory/history.jsonl", "memory/history/", "memory/forgotten.jsonl", "memory/.")


class Documents:
    """Guarded writes by path, for file tools."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def is_document(self, path: str, caller: TurnContext) -> bool:
        """Return True if writes to `path`, relative to the caller's workspace, must use this
        class."""
        scope, inside = locate_document(path, caller)
        return self._memories.of(scope).store.is_document(inside)

    async def replace(
        self, path: str, text: str, *, expected: bytes | None, caller: TurnContext
    ) -> int:
        """Write `text` if the file still has the `expected` content (None: no file). Return the
        version's number.

        Raise `ToolError` if the turn read untrusted content or the guard rejects the text,
        `WriteConflict` if the file has changed, and `PathRefused` for nanobot's own files."""
        scope, inside = locate_document(path, caller)
        if inside in _KEPT_BY_NANOBOT or inside.startswith(_KEPT_PREFIXES):
            raise PathRefused(
                f"{path} is managed by nanobot and cannot be written",
                hint="update_memory changes facts, note adds to today's notes.",
            )
        refuse_off_record(caller)
        before, text = text_of(expected), clean_text(text_of(text.encode()))
        if caller.origins() and text != before:
            raise CallRefused(
                f"{path} was not written: untrusted content (a page, a file, someone else's "
                "message) is in this conversation, and this file guides you from then on",
                hint="Call update_memory: `quote` adds a line that the person wrote, at once. "
                "`add`, `replace`, and `remove` wait until they accept. For notes of today, call "
                "note.",
            )
        if inside in FACTS:
            read = list(caller.messages_read())
            await asyncio.to_thread(refuse_unsupported_text, before, text, read)
        change = _by_agent(caller, summary_of_change(inside, before, text))
        store = self._memories.of(scope).store
        return await store.replace(inside, text, expected=before, change=change)


def refuse_off_record(caller: TurnContext) -> None:
    """Raise `CallRefused` in a turn that is off the record."""
    if caller.off_record:
        raise CallRefused(
            "this request is off the record, so nothing is remembered",
            hint="Tell the person that they can ask again in a normal conversation.",
        )


class Marks:
    """Marks on messages that a person calls important.

    The person uses `/note` (for the message that they reply to, or else their last one), a
    reaction, which a channel sends as that command, or words, for which the model calls the tool
    `note`. A mark is a line of the session's file (`session.records.Mark`). It has no effect on
    trust: untrusted content stays untrusted."""

    def __init__(self, sessions: SessionManager, journal: Journal) -> None:
        self._sessions, self._journal = sessions, journal

    async def mark(self, call: CommandCall, *, kept: bool) -> Message | None:
        """Mark the message that a command refers to, or remove its mark. Return the message, or
        None if it is not found or was not marked. Raise `StorageError`."""
        message, quote = call.message, call.message.reply_to
        if quote is not None:
            found = await self._find_quoted(call, quote)
        else:
            own = (one for one in call.session.messages if one.from_person and not one.is_others)
            found = find_newest(own if kept else filter(attrgetter("kept"), own))
        if found is not None and found.kept != kept:
            via = "a reaction" if message.delivery.unanswered else "/note"
            by = message.sender_id
            await self._sessions.mark(call.session, found.seq, kept=kept, by=by, via=via)
            return found
        return found if kept else None

    async def mark_by_words(self, words: str, caller: TurnContext) -> Message:
        """Mark the newest message before this turn with these words. Its author must be the person,
        or the model if no untrusted content was read. In a group, the last speaker must be the
        owner. Raise `CallRefused`."""
        wanted, is_tainted = _fold(words), bool(caller.origins())
        read = list(caller.messages_read())
        last = next((one for one in reversed(read) if one.from_person), None)
        if last is not None and last.is_others:
            raise CallRefused("only the owner can mark messages as important")

        def is_meant(one: Message) -> bool:
            is_clean_answer = one.role == "assistant" and not is_tainted
            text = one.content if is_clean_answer else one.own_words
            return bool(one.seq and text) and wanted in _fold(text)

        found = find_newest(filter(is_meant, read))
        if found is None or not wanted:
            raise CallRefused(
                f"no earlier message in this conversation has the words {words.strip()[:80]!r}",
                hint="Give its first words exactly. Words of the newest message go into `text`.",
            )
        if not found.kept:
            session = await self._sessions.get_or_create(caller.session_key)
            by, via = caller.sender_id, "their words"
            await self._sessions.mark(session, found.seq, kept=True, by=by, via=via)
        return found

    async def _find_quoted(self, call: CommandCall, quote: Quote) -> Message | None:
        """Find the message that is replied to: by its id, or else by its text among the latest."""
        session, where, turn = call.session, call.message, None
        if quote.message_id:
            turn = await self._journal.find_turn(where.channel, where.chat_id, quote.message_id)
        if turn is not None and turn.session_key == session.key:
            stored = await asyncio.to_thread(self._sessions.read_window, session.key)
            left = [one for one in stored if one.turn_id == turn.turn_id]
            return find_in_turn(left, turn.position)
        text = _fold(quote.text)[:_QUOTED]
        return find_newest(one for one in session.messages if text and text in _fold(one.content))


def find_in_turn(messages: Sequence[Message], position: int) -> Message | None:
    """Return the message of a turn at this `position` among the received ones, or its answer if
    negative."""
    if position < 0:
        return find_newest(one for one in messages if one.role == "assistant" and one.content)
    received = [one for one in messages if one.from_person]
    return received[min(position, len(received) - 1)] if received else None


def find_newest(messages: Iterable[Message]) -> Message | None:
    return max(messages, key=lambda one: one.seq, default=None)


def _fold(text: str) -> str:
    return one_line(text, None).casefold()


class NoteArguments(Arguments, frozen=True):
    text: Annotated[str, Meta(max_length=8_000)] = ""
    quote: Annotated[str, Meta(description="Instead: first words of a line the person wrote.")] = ""
    keep: Annotated[
        str, Meta(description="Instead: first words of an earlier message to mark as important.")
    ] = ""


class Note(Tool, Struct, frozen=True):
    """Tool that adds to today's notes, and marks messages to keep."""

    memories: Memories
    before_change: BeforeChange
    marks: Marks
    name = "note"
    description = "Write into today's notes. What should last goes into update_memory instead."
    arguments = NoteArguments
    effects = True

    async def __call__(self, arguments: NoteArguments, caller: TurnContext) -> ToolResult:
        refuse_off_record(caller)
        if arguments.keep:
            found = await self.marks.mark_by_words(arguments.keep, caller)
            return ToolResult(f"marked to keep: {shorten(found.content, 80)}", trusted=True)
        memory = self.memories.of(caller.scope)
        text, origins = arguments.text, caller.origins()
        if arguments.quote:
            text = quotation(arguments.quote, caller.messages_read(), memory.store.today())
            origins = ()
        keep = partial(self.before_change, caller.turn_id)
        path = await memory.store.append_today(text, before=keep, origins=origins)
        mark = ", marked as unconfirmed: untrusted content may have caused it" if origins else ""
        return ToolResult(f"noted in {path}{mark}", changed=(memory.prefix + path,), trusted=True)


def _lines(description: str) -> Meta:
    return Meta(description=description, max_length=_LINES)


class Rewording(Arguments, frozen=True):
    old: Annotated[str, Meta(max_length=2_000)]
    new: Annotated[str, Meta(max_length=2_000)]


class UpdateMemoryArguments(Arguments, frozen=True):
    file: Annotated[
        Literal["MEMORY.md", "USER.md", "SOUL.md", "AGENTS.md", "TOOLS.md", "HEARTBEAT.md"],
        Meta(description="MEMORY.md: facts, decisions. USER.md: the person. SOUL.md: your manner."),
    ] = "MEMORY.md"
    quote: Annotated[
        tuple[str, ...], _lines("First words of lines the person wrote, each added whole.")
    ] = ()
    add: Annotated[tuple[str, ...], _lines("New lines, one fact each, dates written out.")] = ()
    section: Annotated[
        str, Meta(description="Heading for new lines, such as ## Preferences.", max_length=200)
    ] = ""
    remove: Annotated[tuple[str, ...], _lines("Lines that no longer hold.")] = ()
    replace: Annotated[tuple[Rewording, ...], Meta(max_length=_LINES)] = ()


class UpdateMemory(Tool, Struct, frozen=True):
    """Tool that adds, retires and rewords lines of the long-term files."""

    memories: Memories
    before_change: BeforeChange
    name = "update_memory"
    description = (
        "Change what is remembered for good, line by line. After pages, files or other people's "
        "words were read, use quote: all else waits until the person accepts it."
    )
    arguments = UpdateMemoryArguments
    effects = True

    async def __call__(self, arguments: UpdateMemoryArguments, caller: TurnContext) -> ToolResult:
        refuse_off_record(caller)
        memory, origins = self.memories.of(caller.scope), caller.origins()
        path = _PATHS.get(arguments.file, arguments.file)
        refuse_invalid_call(arguments, path, caller)
        text, today = memory.store.read(path), memory.store.today()
        quoted = [quotation(words, caller.messages_read(), today) for words in arguments.quote]
        steps, held = plan_changes(arguments, text, quoted, tainted=bool(origins))
        done = summarize_operations(arguments.file, steps)
        report = f"{done}."
        if path in FACTS and not origins:
            await asyncio.to_thread(refuse_unsupported, steps, text, list(caller.messages_read()))
        keep = partial(self.before_change, caller.turn_id)
        change, said = _by_agent(caller, done), days_of_quotations(quoted)
        run, over = await memory.pending.retire_contradicted(said, change, keep)
        if steps:
            outcome = await memory.store.apply(
                path,
                steps,
                replace(change, run=run),
                retired=[step.old for step in steps if find_lost_facts(step.old, step.new)],
                before=keep,
            )
            if waiting := (*outcome.beyond, *filter(attrgetter("states"), outcome.left)):
                held, origins = [*held, *waiting], (*origins, BY_NANOBOT)
                report = f"{summarize_operations(arguments.file, outcome.select_applied(steps))}."
        report += explain_retired(over)
        if held:
            report += await self._hold(held, path, origins, caller)
        changed = (memory.prefix + path,) if steps else ()
        return ToolResult(report, changed=changed, trusted=True)

    async def _hold(
        self, held: Sequence[Operation], path: str, origins: Sequence[str], caller: TurnContext
    ) -> str:
        """Hold changes back for approval. Return the notice for the model."""
        pending, change = self.memories.of(caller.scope).pending, _by_agent(caller, "held back")
        waiting, has_room = await pending.hold(held, path, origins, change)
        await pending.notify(waiting, caller.address.key)
        lines = [(step.new or f"without: {step.old}")[:_SHOWN] for step in held]
        why = _MANY if {*origins} == {BY_NANOBOT} else _WAITS
        return why.format("\n".join(lines)) + ("" if has_room else _NO_ROOM)


def explain_retired(facts: Sequence[str]) -> str:
    return _OVER.format("; ".join(map(without_bullet, facts))) if facts else ""


def refuse_invalid_call(wanted: UpdateMemoryArguments, path: str, caller: TurnContext) -> None:
    if not (wanted.add or wanted.quote or wanted.remove or wanted.replace):
        raise CallRefused("nothing to change", hint="Give quote, add, remove or replace.")
    if caller.scope != OWNER and path not in FACTS:  # no one could accept it
        raise CallRefused(
            f"only the owner has {wanted.file}", hint="Use MEMORY.md, USER.md or SOUL.md."
        )
    if wanted.quote and wanted.file not in _QUOTABLE and caller.origins():
        raise CallRefused(
            f"one statement does not become a rule in {wanted.file} by itself",
            hint="Quote it into MEMORY.md or USER.md, or use `add`, which the person accepts.",
        )


_OVER = " The quotation contradicts these facts, so they are retired: {}."
_NO_ROOM = (
    "\nNot all of it: too much waits for them already, so the rest is dropped. Tell them; they "
    "decide with /memory pending."
)
_MANY = (
    "\nMore facts would go than may at once, so these wait for the person. They are shown them and"
    " can accept them at a touch; do not repeat it:\n{}"
)
_WAITS = (
    "\nThis waits for the person, since untrusted content is in this conversation. They are shown"
    " it and can accept it at a touch; do not repeat it:\n{}\nA line that they wrote goes in at"
    " once: give its first words as `quote`."
)


def refuse_unsupported(steps: Sequence[Operation], text: str, read: Sequence[Message]) -> None:
    """Raise `CallRefused` for a line that is not a fact, or with a number or a negation that is
    neither in the conversation nor in the file."""
    from nanobot.memory.support import Talk  # not needed at start

    replaced = {step.old.strip() for step in steps}
    stays = (line for line in text.split("\n") if line.strip() not in replaced)
    talk = Talk(select_recent(read), ["\n".join(stays)])
    for step in steps:
        line = without_bullet(step.new)
        if not line or talk.has_own_line(line) or line.startswith("“"):
            continue
        if reason := junk_reason(line):
            raise CallRefused(f"{line[:_SHOWN]!r} is not a fact: {reason}")
        if reason := talk.objection(line, lenient=True):
            raise CallRefused(
                f"{line[:_SHOWN]!r} was not written: {reason}",
                hint="Give the first words of the person's own line as `quote`.",
            )


def select_recent(read: Sequence[Message]) -> list[Message]:
    """Return the newest messages without untrusted content, of limited total length."""
    recent, room = list[Message](), _COMPARED
    for message in reversed(read):
        if not is_foreign(message) and room > 0:
            recent.insert(0, message)
            room -= len(message.content)
    return recent


def refuse_unsupported_text(before: str, text: str, read: Sequence[Message]) -> None:
    """Check a file that is written as a whole in the same way."""
    steps = [one for one in operations_between(before, text) if fact_lines(one.new)]
    refuse_unsupported(steps[:_MOST_COMPARED], before, read)


def summarize_operations(file: str, steps: Sequence[Operation]) -> str:
    """Summarize the operations: `MEMORY.md: 2 added, 1 retired`."""
    counts = Counter(
        "retired" if not one.new else "reworded" if one.old else "added" for one in steps
    )
    kinds = (kind for kind in ("added", "reworded", "retired") if counts[kind])
    done = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    return f"{file}: {done or 'nothing to change'}"


def plan_changes(
    wanted: UpdateMemoryArguments, text: str, quoted: Sequence[str], *, tainted: bool
) -> tuple[list[Operation], list[Operation]]:
    """Return the immediate changes of a call to `text`, and the changes that need approval.
    `quoted` are lines of the person's to add.

    Raise `ToolError` for a line that is not in the text, and name the most similar one."""
    section = find_heading(wanted.section, text)
    if not section and wanted.section.strip("# ") and not tainted:
        section = f"## {clean_line(wanted.section).lstrip('# ')}"
    changes = [Operation(old=_find_line(line, text, wanted.file)) for line in wanted.remove]
    for one in wanted.replace:
        old = _find_line(one.old, text, wanted.file)
        if not without_bullet(one.new):
            raise CallRefused(
                f"the new text for {one.old.strip()[:_SHOWN]!r} is empty", hint="Use `remove`."
            )
        changes.append(Operation(old, with_words(old, clean_line(one.new))))
    changes += plan_additions(wanted.add, section, text)
    held = select_claims(changes) if tainted else []
    at_once = [step for step in changes if step not in held]
    return at_once + plan_additions(quoted, section, text), held


def select_claims(changes: Sequence[Operation]) -> list[Operation]:
    """Return the changes that state something or remove a fact: the person has to read them."""
    claims = [step for step in changes if step.new or fact_lines(step.old)]
    if any(len(step.new) > _LONGEST for step in claims):
        raise CallRefused(f"a fact may have at most {_LONGEST:,} characters")
    return claims


def _find_line(wanted: str, text: str, file: str) -> str:
    """Return the line of `text` that is `wanted`, ignoring list mark, case and spaces."""
    if line := find_line(wanted, text, facts_only=False):
        return line
    near = most_similar(wanted, filter(str.strip, text.splitlines()), _NEAR)
    raise CallRefused(
        f"no line of {file} is {wanted.strip()[:_SHOWN]!r}. Nothing was changed",
        hint=f"The nearest is: {near.strip()[:_SHOWN]}" if near else "Read the file again.",
    )


def plan_additions(lines: Sequence[str], section: str, text: str) -> list[Operation]:
    """Return the lines as new list items below a heading, except for lines that `text` has."""
    pieces = (without_bullet(clean_line(piece)) for line in lines for piece in line.split("\n"))
    new = (one for one in pieces if one and not find_line(one, text, facts_only=False))
    return [Operation(new=f"- {one}", section=section) for one in dict.fromkeys(new)]


def _by_agent(caller: TurnContext, summary: str) -> Change:
    return Change("agent", summary, session=caller.session_key, turn=caller.turn_id)


def locate_document(path: str, caller: TurnContext) -> tuple[str, str]:
    """Return the scope that `path` belongs to, and the path in it. The owner's workspace holds all
    scopes."""
    kind, _, rest = path.partition("/")
    name, _, inside = rest.partition("/")
    scope = f"{kind}/{name}"
    if caller.scope == OWNER and inside and scope != OWNER and is_scope(scope):
        return scope, inside
    return caller.scope, path
