"""`/continue` and `/discard`: continue another conversation, and drop this one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, dropwhile, islice
from typing import Protocol

from msgspec import convert
from msgspec.structs import replace

from nanobot.commands import Answer, CommandCall
from nanobot.memory.gitstore import GitStore
from nanobot.memory.scopes import Scopes, is_group
from nanobot.memory.service import MemoryService
from nanobot.memory.service.views import format_minute
from nanobot.memory.version import Version
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Session, SessionInfo
from nanobot.text import join_some, pluralize, shorten

_LISTED, _TITLE = 10, 60
_MOST_LEARNED = 20
_MOST_TURNS, _FILES_SHOWN = 50, 8


async def continue_conversation(
    call: CommandCall, sessions: SessionManager, scopes: Scopes
) -> Answer:
    """Copy the conversation that the argument names, or list the others of this person.

    Only the messages that are not in memory yet are copied. The other conversation is unchanged.
    The copy is one turn of this conversation, so that `/undo` reverts it. Only conversations of the
    same scope are available, and none in a group."""
    session = call.session

    if is_group(call.scope):
        return Answer("/continue works only in private chats.")

    def list_others() -> dict[str, SessionInfo]:
        # The session has its scope: a group's key may look like a person's.
        infos, of_session = sessions.list_sessions(), scopes.of_session
        same = (one for one in infos if of_session(one.key, one.metadata) == call.scope)
        return {one.key: one for one in same if one.key != session.key}

    wanted, others = call.arguments.strip(), await asyncio.to_thread(list_others)
    if not others:
        return Answer("You have no other conversations to continue.")
    if wanted not in others:
        return Answer(await render_list(wanted, others.values(), sessions))
    here = set(map(_identity, session.messages))
    new = [one for one in await load_tail(wanted, sessions) if _identity(one) not in here]
    if not new:
        return Answer(
            f"This chat already has all messages from {wanted}. Older ones are in memory."
        )
    for message in new:
        session.add_message(
            replace(message, seq=0, turn_id=f"continue-{call.entry_id}", kept=False, replaces=())
        )
    take_title(session, others[wanted], len(new))
    return Answer(
        f"Copied {pluralize(len(new), 'message')} from {wanted}. To revert this, send /undo."
    )


def take_title(session: Session, other: SessionInfo, copied: int) -> None:
    """Give an otherwise empty conversation the title of the other one."""
    if session.next_seq == copied + 1 and other.title:
        session.set_metadata(title=other.title)


async def render_list(unknown: str, infos: Iterable[SessionInfo], sessions: SessionManager) -> str:
    lines = ["You have no other conversation with this name.", ""] if unknown else []
    lines += ["Your other conversations, newest first:", ""]
    for info in islice(infos, _LISTED):
        count = pluralize(len(await load_tail(info.key, sessions)), "message")
        when, title = format_minute(info.updated_at), shorten(info.title or info.preview, _TITLE)
        lines.append(f"- `/continue {info.key}`: {when}, {count}, “{title}”")
    return "\n".join(lines)


async def load_tail(key: str, sessions: SessionManager) -> list[Message]:
    messages = (await sessions.get_or_create(key)).messages
    return list(dropwhile(lambda one: one.role != "user", messages))


def _identity(message: Message) -> tuple[object, ...]:
    """Return a key that is equal for the same message in all conversations."""
    return message.timestamp, message.role, message.content, message.tool_call_id


class FileChanges(Protocol):
    """The changes of turns in files, as `nanobot.tools.files.UndoLog`. Blocks."""

    def paths(self, turn_id: str) -> list[str]:
        """Return the files that a turn changed."""
        ...

    def revert(self, turn_id: str) -> Sequence[tuple[str, str]]:
        """Restore them. Return each file with its result."""
        ...


async def discard_conversation(
    call: CommandCall,
    service: MemoryService,
    changes: FileChanges,
    has_effects: Callable[[str], bool],
) -> Answer:
    """Drop a conversation without remembering it, and list the remaining effects.

    The messages leave the window and memory. Other effects stay: changed files, which `/discard
    --undo` restores (also right after a `/discard`), learned facts, each with the command that
    undoes it, and effects that can't be undone. `has_effects` returns True for a tool that does
    more than read."""
    if call.arguments not in ("", "--undo"):
        return Answer("Usage: /discard, or /discard --undo to restore the changed files, too")
    session, undo, files = call.session, bool(call.arguments), list[str]()
    async with session.removal_lock:
        gone = session.messages
        session.discard(call.entry_id)
    turns = list(dict.fromkeys(filter(None, (message.turn_id for message in gone))))
    lines = [f"Dropped {pluralize(len(gone), 'message')}. Nothing will be remembered."]
    if not gone:
        # Right after a `/discard`, its files can still be restored.
        turns, lines = convert(session.metadata.get("discarded") or [], list[str]), []
        if not (undo and turns):
            return Answer("This conversation is empty.")
    if undo:
        lines += await asyncio.to_thread(restore_files, turns, changes)
    else:
        files = await asyncio.to_thread(list_changed_files, turns, changes)
    versions = service.memory(call.scope).versions
    learned = await asyncio.to_thread(list_learned, session.key, gone, versions)
    if left := list(list_remaining(files, learned, gone, has_effects)):
        lines += ["", "Not undone:", *left]
    kept: list[JsonValue] = [*turns[-_MOST_TURNS:]]
    session.set_metadata(discarded=kept if files else None)
    return Answer("\n".join(lines))


def restore_files(turns: Sequence[str], changes: FileChanges) -> list[str]:
    changed = [turn for turn in reversed(turns) if changes.paths(turn)]
    done = [one for turn in changed for one in changes.revert(turn)]
    return [f"- {path}: {outcome}" for path, outcome in done] or ["No files were changed."]


def list_changed_files(turns: Sequence[str], changes: FileChanges) -> list[str]:
    return list(dict.fromkeys(path for turn in turns for path in changes.paths(turn)))


def list_learned(session: str, gone: Sequence[Message], versions: GitStore) -> list[Version]:
    """Return the undoable changes of memory by a conversation, newest first. Blocks."""
    begun = next(filter(None, (message.timestamp for message in gone)), None)
    if begun is None:
        return []
    since, found = begun.replace(microsecond=0), versions.log(_MOST_LEARNED)
    made_here = (one for one in found if one.change.session == session and one.when >= since)
    return [version for version in made_here if versions.plan_undo(version.number).texts]


def list_remaining(
    files: Sequence[str],
    learned: Sequence[Version],
    gone: Sequence[Message],
    has_effects: Callable[[str], bool],
) -> Iterator[str]:
    """Yield a line for each remaining effect of a dropped conversation."""
    known = set(chain.from_iterable(version.paths for version in learned))
    if other := [path for path in files if path not in known]:
        yield f"- changed files: {join_some(other, _FILES_SHOWN)} (`/discard --undo`)"
    for version in learned:
        undo = f"`/dream-restore --version {version.number}`"
        yield f"- in memory: {shorten(version.summary, 120)} ({undo})"
    tools = (call.name for message in gone for call in message.tool_calls)
    if effects := Counter(filter(has_effects, tools)):
        counts = ", ".join(f"{name} ({times})" for name, times in effects.items())
        yield f"- tool calls: {counts.replace(' (1)', '')}"
