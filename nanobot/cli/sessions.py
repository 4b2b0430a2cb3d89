"""`nanobot sessions list|show`: reads the files only, so it works beside a running gateway."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from datetime import datetime, tzinfo
from pathlib import Path

from loguru import logger

from nanobot.cli.admin import put, to_json
from nanobot.cli.show import Data, fitted, message_text, table
from nanobot.cli.zone import zone_of
from nanobot.clock import SystemClock
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot_cli.text import one_line


def list_sessions(home: Path, *, as_json: bool) -> int:
    """`nanobot sessions list`: the one used last first."""
    sessions = _manager(home).list_sessions()
    if as_json:
        return put(
            to_json(
                [
                    {
                        "key": info.key,
                        "created_at": info.created_at.isoformat(),
                        "updated_at": info.updated_at.isoformat(),
                        "bytes": info.size,
                        "preview": info.preview,
                        "path": str(info.path),
                    }
                    for info in sessions
                ]
            )
        )
    if not sessions:
        return put("No conversations yet. `nanobot agent` starts one.\n")
    zone = zone_of(home)
    rows = [
        (one_line(info.key, 80), _minute(info.updated_at, zone), one_line(info.preview, 60))
        for info in sessions
    ]
    return put(table([("session", "last used", "last words"), *rows]))


def show_session(home: Path, key: str, *, count: int, as_json: bool) -> int:
    """`nanobot sessions show KEY`: the latest `count` messages, oldest of them first.

    Raises `UnknownSession`.
    """
    messages = deque(_manager(home).read_messages(key), maxlen=count)
    if as_json:
        return put(to_json({"key": key, "messages": [_fields(message) for message in messages]}))
    if not messages:
        return put("Nothing has been said in this conversation yet.\n")
    zone = zone_of(home)
    return put(fitted("\n".join(message_text(_as_said(message, zone)) for message in messages)))


def _manager(home: Path) -> SessionManager:
    logger.remove()
    logger.add(sys.stderr, level="WARNING", format="warning: {message}")
    return SessionManager(home / "sessions", SystemClock())


def _fields(message: Message) -> dict[str, object]:
    """The message for machines: fields without a value are left out."""
    fields: dict[str, object] = {"seq": message.seq, "role": message.role}
    if message.timestamp is not None:
        fields["timestamp"] = message.timestamp.isoformat()
    fields["content"] = message.content
    if message.tool_calls:
        fields["tool_calls"] = [dataclasses.asdict(call) for call in message.tool_calls]
    for name in ("tool_call_id", "name", "tools_used", "turn_id", "media", "origin"):
        if value := getattr(message, name):
            fields[name] = value
    return fields


def _as_said(message: Message, zone: tzinfo | None) -> Data:
    calls = "".join(f"\n-> {call.name} {call.arguments}" for call in message.tool_calls)
    return {
        "seq": message.seq,
        "time": _minute(message.timestamp, zone) if message.timestamp else "",
        "role": "nanobot" if message.origin == "nanobot" else message.role,
        "name": message.name,
        "turn_id": message.turn_id,
        "content": (message.content + calls).lstrip("\n"),
    }


def _minute(moment: datetime, zone: tzinfo | None) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"
