"""Turns of jobs and of the heartbeat: what of them is said in the chat, and what the chat's own
conversation gets to know of it. Pure.

Such a turn has a conversation of its own. What it says is the newest thing in the chat, so the
conversation there has it as well, marked with where it came from, and a person can answer it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nanobot.agent.intake import one_line
from nanobot.bus.events import NANOBOT, InboundMessage
from nanobot.memory.grounds.marks import passed_on
from nanobot.messages import SILENT

_KEPT_CHARACTERS = 4_000


def is_silent(text: str) -> bool:
    """Whether an answer says that there is nothing to say."""
    bare = text.strip().strip("`*.").strip()
    return not bare or bare.casefold() == SILENT


def failed_text(inbound: InboundMessage, text: str) -> str:
    """What the chat hears of a run that failed; nothing of a heartbeat's."""
    if inbound.begun_by == "heartbeat":
        return ""
    return f"The scheduled job “{_name(inbound)}” could not run. {text}"


def waiting_text(inbound: InboundMessage) -> str:
    """What it hears of a run that has to wait for the model; of a job's only."""
    if inbound.begun_by != "job":
        return ""
    return (
        f"It is time for the scheduled job “{_name(inbound)}”, but the model cannot be reached "
        "right now. It runs as soon as it can be."
    )


def note_for_chat(
    inbound: InboundMessage, text: str, origins: Iterable[str], now: datetime
) -> InboundMessage:
    """What the chat's conversation gets to know of `text`, which was said there; `origins` are
    those of what the turn has read."""
    who = "heartbeat" if inbound.begun_by == "heartbeat" else f"job “{_name(inbound)}”"
    said = one_line(text)[:_KEPT_CHARACTERS]
    foreign = set(origins)
    return InboundMessage(
        inbound.channel,
        inbound.chat_id,
        sender_id=NANOBOT,
        content=f"[{NANOBOT}: said here by the {who}: {said}]",
        event_id=f"{inbound.event_id}:said",
        timestamp=now,
        thread_id=inbound.thread_id,
        session_override=inbound.chat_key,
        origin=passed_on(f"job:{inbound.job or 'heartbeat'}", foreign) if foreign else NANOBOT,
        unanswered=True,
    )


def _name(inbound: InboundMessage) -> str:
    return one_line(inbound.sender_name) or inbound.job
