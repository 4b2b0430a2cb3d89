"""What a turn becomes in its session and in the journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from nanobot.agent.running import RunningTurn
from nanobot.bus.events import InboundMessage, TurnEnded
from nanobot.bus.journal import InboxEntry
from nanobot.clock import Clock
from nanobot.memory.grounds.marks import carried, origins_of
from nanobot.memory.scopes import Scopes
from nanobot.messages import Message
from nanobot.providers.port import Usage
from nanobot.session.records import JsonValue
from nanobot.session.session import Session


def stage_whose_it_is(session: Session, inbound: InboundMessage, scopes: Scopes) -> bool:
    """Stage what a conversation's key does not tell about who it is with; whether there is
    anything."""
    if inbound.scope and session.metadata.get("scope") != inbound.scope:
        session.set_metadata(scope=inbound.scope)
        return True
    if inbound.session_override:
        return False
    changes: dict[str, JsonValue] = {}
    if scopes.of_session(session.key, session.metadata) != scopes.of_message(inbound):
        changes = {
            "sender": None if inbound.is_group else inbound.sender_id,
            "group": True if inbound.is_group else None,
            "chat": inbound.chat_id if inbound.thread_id else None,
        }
    name = "" if inbound.is_group else inbound.sender_name
    if name and session.metadata.get("name") != name:
        changes["name"] = name
    if changes:
        session.set_metadata(**changes)
    return bool(changes)


def turn_name(entry: InboxEntry, clock: Clock) -> str:
    """A turn's id: the day, the message's number in the inbox, and the run if it is not the first.

    The day keeps ids apart when a journal is lost and numbering begins again.
    """
    run = f".{entry.runs + 1}" if entry.runs else ""
    return f"{clock.now():%y%m%d}-{entry.id}{run}"


def stage(session: Session, turn: RunningTurn, messages: Sequence[Message]) -> None:
    """Stage a turn's messages. What the model said after it read foreign text carries the mark of
    that: it may repeat it."""
    tools = tuple(dict.fromkeys(turn.tools))
    foreign = set(origins_of(turn.before()))
    for message in messages:
        is_final = message is messages[-1] and message.role == "assistant"
        used = tools if is_final else ()
        foreign.update(origins_of([message]))
        origin = carried(foreign) if message.role == "assistant" else message.origin
        session.add_message(replace(message, turn_id=turn.id, tools_used=used, origin=origin))


def report(turn: RunningTurn, ended: TurnEnded, usage: Usage) -> str:
    """What `nanobot turn show` tells of a turn, as JSON."""
    return json.dumps(
        {
            "model": turn.model,
            "system_id": turn.prompt.system_id,
            "first_seq": turn.prompt.first_seq,
            "memory": turn.prompt.memory,
            "tool_milliseconds": turn.milliseconds,
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "cached_tokens": usage.cached,
            "milliseconds": ended.milliseconds,
        }
    )
