"""Invariants of a conversation's file after a fault campaign."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from nanobot.messages import Message
from nanobot.session.records import decode, stem_of


def faults_of_transcript(
    home: Path, key: str, mark: re.Pattern[str], said: Collection[str]
) -> list[str]:
    """Return the faults in the file of session `key`.

    `mark` finds in a person's message which of `said` it is. Each of these must occur exactly
    once."""
    folder = home / "sessions"
    path = folder / f"{stem_of(key)}.jsonl"
    if not path.exists():
        return [f"{key} has no file"]
    # A power loss may leave zeros, which are skipped or set aside.
    lines = [line for line in path.read_bytes().splitlines() if b"\0" not in line]
    wrong = ["an unreadable line"] if None in map(decode, lines) else []
    messages = messages_of(home, key)
    if sorted({m.seq for m in messages}) != [m.seq for m in messages]:
        wrong.append("sequence numbers repeat or fall back")
    found = Counter(one for m in messages if m.role == "user" for one in mark.findall(m.content))
    wrong += [f"{one} stands {found[one]} times in {key}" for one in said if found[one] != 1]
    called = Counter(call.id for m in messages for call in m.tool_calls)
    results = Counter(m.tool_call_id for m in messages if m.role == "tool")
    if called != results:
        wrong.append("calls without results")
    aside = (one for one in folder.glob("*.corrupt*") if one.read_bytes().strip(b"\0"))
    wrong += [f"{one.name} was set aside" for one in aside]
    return wrong


def messages_of(home: Path, key: str) -> list[Message]:
    """Return the messages in session `key`, in order."""
    path = home / "sessions" / f"{stem_of(key)}.jsonl"
    records = map(decode, path.read_bytes().splitlines() if path.exists() else ())
    return [record for record in records if isinstance(record, Message)]


def files_of_transcript(home: Path, key: str) -> list[str]:
    """Return the files of the people's messages in session `key`, in order."""
    return [one.file for message in messages_of(home, key) for one in message.media]
