"""`nanobot sessions`, `turn` and `queue`: conversations, one turn, and what waits or failed.

Conversations are read from their files, beside a running gateway or not; the others ask it.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Commands,
    Data,
    field,
    indent,
    number,
    print_json,
    print_result,
    print_text,
    records,
    shared_folder,
    table,
    text,
    zone_of,
)
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot.messages import Message
    from nanobot.session.manager import SessionManager


def add_sessions(commands: Commands) -> None:
    """`nanobot sessions …`."""
    what = commands.group("sessions", "list and show conversations")
    what.add("list", "list all conversations, latest first", _list).json()
    show = what.add("show", "show the latest messages of one", _show)
    show.argument("key", "KEY", "as `sessions list` shows it")
    show.count(20, "messages")
    show.json()


def add_turn(commands: Commands) -> None:
    """`nanobot turn …`."""
    what = commands.group("turn", "show one turn")
    summary = "show prompt, memory, tools, tokens and time of a turn"
    show = what.operation("show", summary, "turn.show", _turn_text)
    show.argument("id", "ID", "as `nanobot agent -m … --json` shows it")


def add_queue(commands: Commands) -> None:
    """`nanobot queue …`."""
    what = commands.group("queue", "show and fix messages that wait or failed")
    what.operation("list", "list messages that wait or failed", "queue.list", _queue_text)
    for name, summary in (("retry", "retry one"), ("drop", "discard one")):
        change = what.operation(name, summary, f"queue.{name}")
        change.argument("id", "ID", "as `queue list` shows it: in-12, out-7")


def _list(options: argparse.Namespace) -> int:
    infos = _manager(options.home).list_sessions()
    if options.json:
        fields = [
            {
                "key": info.key,
                "created_at": info.created_at.isoformat(),
                "updated_at": info.updated_at.isoformat(),
                "bytes": info.size,
                "preview": info.preview,
                "path": info.place,
            }
            for info in infos
        ]
        return print_json(fields)
    zone = zone_of(options.home)
    rows = [
        (one_line(info.key, 80), _minute(info.updated_at, zone), one_line(info.preview, 60))
        for info in infos
    ]
    shown = table(rows, "session", "last used", "last words")
    return print_text(shown or "No conversations yet. `nanobot agent` starts one.\n")


def _show(options: argparse.Namespace) -> int:
    messages = deque(_manager(options.home).read_messages(options.key), maxlen=options.n)
    data = {"key": options.key, "messages": list(map(_fields, messages))}
    return print_result(options, data, partial(_messages_text, options.home))


def _messages_text(home: Path, data: Data) -> str:
    zone = zone_of(home)
    shown = "\n".join(_message(message, zone) for message in records(data, "messages"))
    return shown or "Nothing has been said in this conversation yet.\n"


def _manager(home: Path) -> SessionManager:
    from loguru import logger

    from nanobot.clock import SystemClock
    from nanobot.session.manager import SessionManager

    logger.remove()
    logger.add(sys.stderr, level="WARNING", format="warning: {message}")
    kept = home / "state" / "catalogue.db"
    catalogue = kept if kept.parent.is_dir() else None  # nothing is made where there is no home
    folder = shared_folder(home) / "sessions"
    return SessionManager.in_folder(folder, SystemClock(), catalogue=catalogue)


def _fields(message: Message) -> dict[str, object]:
    """The message for machines: fields without a value are left out."""
    import msgspec

    fields = {"seq": message.seq, "role": message.role, **msgspec.to_builtins(message)}
    fields.pop("notice", None)
    return {key: value for key, value in fields.items() if value or key == "content"}


def _minute(moment: datetime, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).isoformat(" ", "minutes")[:16]


def _message(message: Data, zone: tzinfo | None = None) -> str:
    """A line that says whose message it is, then what it says."""
    role, turn = field(message, "role"), field(message, "turn_id")
    moment = text(message, "timestamp")
    parts = [
        f"#{number(message, 'seq')}" if number(message, "seq") else "",
        _minute(datetime.fromisoformat(moment), zone) if moment else "",
        "nanobot" if field(message, "origin") == "nanobot" else role,
        field(message, "name"),
        f"(turn {turn})" if turn and role == "user" else "",
    ]
    calls = records(message, "tool_calls")
    called = [f"-> {field(c, 'name')} {text(c, 'arguments')}" for c in calls]
    said = [text(message, "content")] if text(message, "content") else []
    return " ".join(filter(None, parts)) + "\n" + indent("\n".join([*said, *called]))


def _turn_text(turn: Data) -> str:
    """Everything worth knowing about one turn; what is long comes last."""
    cost = turn.get("cost")
    tokens = (
        f"{number(turn, 'prompt_tokens'):,} prompt ({number(turn, 'cached_tokens'):,} cached), "
        f"{number(turn, 'completion_tokens'):,} completion"
        f"{f'; cost {cost:.4f}' if isinstance(cost, float) else ''}"
    )
    head = [
        ("turn", field(turn, "id")),
        ("session", field(turn, "session")),
        ("state", field(turn, "state")),
        ("started", field(turn, "started_at")),
        ("took", f"{number(turn, 'milliseconds'):,} ms"),
        ("model", field(turn, "model")),
        ("tokens", tokens),
    ]
    memory = [
        (field(source, "path"), f"{number(source, 'characters'):,} characters")
        for source in records(turn, "memory")
    ]
    sections = (
        ("memory used", table(memory, margin=2)),
        ("tools", "".join(map(_tool, records(turn, "tools")))),
        ("system prompt", indent(text(turn, "system_prompt"))),
        ("messages", "".join(map(_message, records(turn, "messages")))),
        ("new messages", "".join(map(_message, records(turn, "new_messages")))),
    )
    blocks = [f"{title}\n" + (block or "  none\n") for title, block in sections]
    return "\n".join([table(head), *blocks])


def _tool(tool: Data) -> str:
    took = f"{number(tool, 'milliseconds'):,} ms"
    head = f"  {field(tool, 'name')} {field(tool, 'arguments', 100)} ({took})\n"
    return head + indent(indent(one_line(text(tool, "result"), 300)))


def _queue_text(queue: Data) -> str:
    blocks, failed = list[str](), False
    for title, whose in (("inbox", "session"), ("outbox", "to")):
        rows = []
        for entry in records(queue, title):
            place = field(entry, "session") or f"{entry['channel']}:{entry['chat_id']}"
            reason = f"  ({field(entry, 'reason', 100)})" if field(entry, "reason") else ""
            said = f"{field(entry, 'text', 60)}{reason}"
            known = (field(entry, key) for key in ("id", "state", "attempts"))
            rows.append((*known, one_line(place, 200), said))
            failed |= field(entry, "state") in ("failed", "dead")
        if rows:
            blocks.append(f"{title}\n{table(rows, 'id', 'state', 'tries', whose, margin=2)}")
    if failed:
        blocks.append("`nanobot queue retry ID` and `nanobot queue drop ID` fix what failed.\n")
    return "\n".join(blocks) or "Nothing waits and nothing failed.\n"
