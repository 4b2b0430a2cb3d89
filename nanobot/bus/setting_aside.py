"""A journal out of a backup that was made while its nanobot went on working.

What was under way in it then has in all likelihood been finished there. Doing it again would answer
twice, and repeat what tools did; so it waits for a person's word, as what failed does: `nanobot
queue list` shows it.
"""

from __future__ import annotations

import sqlite3

from nanobot.bus.helpers import decoded

REASON = "it was under way when the backup was made, and may have been done since"


def set_aside(db: sqlite3.Connection) -> int:
    """Let every message that waits, every part of a reply, and what is to be said of every helper
    that was at work, be one that failed; how many.

    Works on a journal of any version, within the caller's transaction.
    """
    db.execute("UPDATE turn SET state = 'failed' WHERE state = 'running'")
    messages = db.execute(
        "UPDATE inbox SET state = 'failed', reason = ? WHERE state IN ('received', 'working')",
        (REASON,),
    ).rowcount
    parts = db.execute(
        "UPDATE outbox SET state = 'dead', reason = ? WHERE state IN ('pending', 'sending')",
        (REASON,),
    ).rowcount
    return messages + parts + _helpers(db)


def _helpers(db: sqlite3.Connection) -> int:
    """A helper's report has most likely come since: that it was lost is no news by itself."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'helper'").fetchone():
        return 0
    count = 0
    helpers = db.execute("SELECT id, started_at, if_lost FROM helper").fetchall()
    for helper_id, started_at, text in helpers:
        lost = decoded(helper_id, text)
        if lost is None:
            continue
        count += db.execute(
            "INSERT INTO inbox (channel, chat_id, event_id, session_key, state, reason,"
            " received_at, payload) VALUES (?, ?, ?, ?, 'failed', ?, ?, ?)"
            " ON CONFLICT (channel, chat_id, event_id) DO NOTHING",
            (
                *(lost.channel, lost.chat_id, lost.event_id, lost.session_key),
                *(REASON, started_at, text),
            ),
        ).rowcount
    db.execute("DELETE FROM helper")
    return count
