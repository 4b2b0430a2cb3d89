"""`nanobot sessions` and `turn`: conversations, and one turn.

Conversations are read from their files, with or without a gateway. Turns are asked of the
gateway."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Commands,
    Options,
    Parser,
    confirm_change,
    find_shared_folder,
    indent,
    print_json,
    print_text,
    table,
    words,
    zone_of,
)
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from nanobot.messages import Message
    from nanobot.session.manager import SessionManager


def add_sessions(sessions: Parser) -> None:
    what = sessions.group()
    listed = what.add("list", "list conversations: pinned ones, then latest first", show_sessions)
    listed.flag("--archived", "list the archived ones instead")
    listed.count(50, "conversations").json()
    search = what.add("search", "find messages in all conversations", _search)
    search.argument("query", "WORDS", "words of a message, or their beginnings", type=words)
    search.count(20, "messages").json()
    _add_change(what, "rename", "change a conversation's title", _rename).argument(
        "title", "TITLE", "the new title, or '' for the first words"
    )
    for name, summary in _SWITCHES:
        change = _add_change(what, name, summary, partial(_switch, name))
        change.flag("--off", "undo this")
    delete = _add_change(what, "delete", "delete a conversation for good", _delete)
    delete.yes()
    show = what.add("show", "show the latest messages in a conversation", show_messages)
    show.argument("key", "KEY", "its key in `sessions list`")
    show.count(20, "messages")
    show.json()


def add_turn(turn: Parser) -> None:
    what = turn.group()
    summary = "show a turn's prompt, memory, tools, token usage, and duration"
    show = what.operation("show", summary, "turn.show", format_turn)
    show.argument("id", "ID", "the turn's id, from `nanobot logs` or `nanobot agent -m … --json`")


_SWITCHES = (
    ("pin", "keep a conversation at the top of the list"),
    ("archive", "move a conversation out of the list"),
)


def _add_change(what: Commands, name: str, summary: str, run: Callable[[Options], int]) -> Parser:
    change = what.add(name, summary, run)
    return change.argument("key", "KEY", "its key in `sessions list`").json()


def _rename(options: Options) -> int:
    return _change(options, title=options.title)


def _switch(name: str, options: Options) -> int:
    return _change(options, **{"pinned" if name == "pin" else "archived": not options.off})


def _change(options: Options, **changes: object) -> int:
    done = options.operate("conversations.change", key=options.key, **changes)
    return options.print_result(done)


def _delete(options: Options) -> int:
    question = f"Delete all messages of {options.key}? This can't be undone."
    if not options.yes and not confirm_change(question):
        return 1
    return options.print_result(options.operate("conversations.delete", key=options.key))


def _search(options: Options) -> int:
    found = options.operate("conversations.search", query=options.query, limit=options.n)
    return options.print_result(found, format_hits)


def format_hits(found: Data) -> str:
    """List messages, each below its conversation and time."""
    blocks = []
    for hit in found.records("hits"):
        who = "nanobot" if hit.field("role") == "assistant" else hit.field("speaker")
        head = f"{hit.field('key', 80)} #{hit.number('seq')}  {hit.minute('at')}  {who}"
        blocks.append(f"{head}\n{indent(hit.field('snippet', 200))}")
    return "\n".join(blocks) or "No message has all of these words.\n"


def show_sessions(options: Options) -> int:
    sessions, archived = _open_manager(options.home), options.archived
    found = [*sessions.list_sessions(archived=archived, most=options.n)]
    counts = sessions.count_by_scope(archived=archived) if len(found) == options.n else {}
    count = sum(counts.values())
    more = count - len(found)
    left = f"{more:,} more. To list all, add `-n {count}`.\n" if more > 0 else ""
    if options.json:
        print_text(left, sys.stderr)
        return print_json(
            [
                {
                    "key": info.key,
                    "created_at": info.created_at.isoformat(),
                    "updated_at": info.updated_at.isoformat(),
                    "bytes": info.size,
                    "title": info.title,
                    "pinned": info.is_pinned,
                    "archived": info.is_archived,
                    "preview": info.preview,
                    "path": info.place,
                }
                for info in found
            ]
        )
    zone = zone_of(options.home)
    rows = [
        (
            one_line(info.key, 80),
            str(info.updated_at.astimezone(zone))[:16],
            ("* " if info.is_pinned else "") + one_line(info.title or info.preview, 60),
        )
        for info in found
    ]
    shown = table(rows, "session", "last used", "title")
    if not shown:
        return print_text("No conversations yet. `nanobot agent` starts one.\n")
    return print_text(f"{shown}\n{left}" if left else shown)


def show_messages(options: Options) -> int:
    messages = deque(_open_manager(options.home).read_messages(options.key), maxlen=options.n)
    data = {"key": options.key, "messages": list(map(_message_fields, messages))}
    if options.json:
        return print_json(data)
    zone = zone_of(options.home)
    shown = "\n".join(_format_message(message, zone) for message in Data(data).records("messages"))
    return print_text(shown or "This conversation has no messages yet.\n")


def _open_manager(home: Path) -> SessionManager:
    from loguru import logger

    from nanobot.clock import SystemClock
    from nanobot.session.catalogue import SessionCatalogue
    from nanobot.session.manager import SessionManager

    logger.remove()
    logger.add(sys.stderr, level="WARNING", format="warning: {message}")
    kept = home / "state" / "catalogue.db"
    catalogue = kept if kept.parent.is_dir() else None  # do not create a home
    folder = find_shared_folder(home) / "sessions"
    return SessionManager(SessionCatalogue(folder, SystemClock(), catalogue), SystemClock())


def _message_fields(message: Message) -> dict[str, object]:
    """Return the message for machines, without empty fields."""
    import msgspec

    fields = {"seq": message.seq, "role": message.role, **msgspec.to_builtins(message)}
    fields.pop("notice", None)
    fields["ended"] = message.ended
    return {key: value for key, value in fields.items() if value or key == "content"}


def _format_message(message: Data, zone: tzinfo | None = None) -> str:
    """Return a heading with the sender and the time, then the indented content."""
    role, turn = message.field("role"), message.field("turn_id")
    parts = [
        f"#{message.number('seq')}" if message.number("seq") else "",
        message.local_minute("timestamp", zone),
        "nanobot" if message.field("origin") == "nanobot" else role,
        message.field("name"),
        f"(turn {turn})" if turn and role == "user" else "",
    ]
    calls = message.records("tool_calls")
    called = [f"-> {c.field('name')} {c.text('arguments')}" for c in calls]
    said = [message.text("content")] if message.text("content") else []
    files = [f"[{file.field('name') or file.field('file')}]" for file in message.records("media")]
    ended = [f"({message.field('ended')})"] if message.get("ended") else []
    lines = "\n".join([*said, *files, *called, *ended])
    return " ".join(filter(None, parts)) + "\n" + indent(lines)


def format_turn(turn: Data) -> str:
    """Describe a turn, with the long parts last."""
    cost = turn.get("cost")
    tokens = (
        f"{turn.number('prompt_tokens'):,} prompt ({turn.number('cached_tokens'):,} cached), "
        f"{turn.number('completion_tokens'):,} completion"
        f"{f', cost {cost:.4f}' if isinstance(cost, float) else ''}"
    )
    head = [
        ("turn", turn.field("id")),
        ("session", turn.field("session")),
        ("state", turn.field("state")),
        ("started", turn.field("started_at")),
        ("took", f"{turn.number('milliseconds'):,} ms"),
        ("model", turn.field("model")),
        ("tokens", tokens),
    ]
    memory = [
        (source.field("path"), f"{source.number('characters'):,} characters")
        for source in turn.records("memory")
    ]
    sections = (
        ("memory used", table(memory, margin=2)),
        ("tools", "".join(map(_format_tool, turn.records("tools")))),
        ("system prompt", indent(turn.text("system_prompt"))),
        ("messages", "".join(map(_format_message, turn.records("messages")))),
        ("new messages", "".join(map(_format_message, turn.records("new_messages")))),
    )
    blocks = [f"{title}\n" + (block or "  none\n") for title, block in sections]
    return "\n".join([table(head), *blocks])


def _format_tool(tool: Data) -> str:
    took = f"{tool.number('milliseconds'):,} ms"
    head = f"  {tool.field('name')} {tool.field('arguments', 100)} ({took})\n"
    return head + indent(indent(one_line(tool.text("result"), 300)))
