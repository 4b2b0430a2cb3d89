"""The gate's judgement: what the owner decided beforehand, how they are asked, what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nanobot.agent.notifier import Courier
from nanobot.agent.session_queue import Lanes
from nanobot.app.home import Stores
from nanobot.app.model import secrets
from nanobot.bus.events import Address, Button
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.memory.scopes import OWNER, Scopes, is_group
from nanobot.security.access.codes import new_code
from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.tooling import Caller, OwnersPolicy, ToolRegistry
from nanobot.tooling.approvals import Approvals
from nanobot.tooling.auditing import AuditedCalls


def build_approvals(scopes: Scopes, courier: Courier, lanes: Lanes, clock: Clock) -> Approvals:
    """What asks the owner, in their own chat."""
    return Approvals(partial(_ask, scopes, courier), lanes.pausing, clock, new_code)


def build_gate(
    settings: Settings, stores: Stores, approvals: Approvals, clock: Clock
) -> ToolRegistry:
    """The one gate, with no tools yet."""
    redactor = Redactor(secrets(settings))
    return ToolRegistry(
        policy=OwnersPolicy(settings.tools.approval.by_kind()),
        approver=approvals,
        audit=AuditedCalls(AuditLog(stores.home / "logs" / "audit.jsonl", redactor, clock)),
        redactor=redactor,
        overflow=stores.spill,
    )


async def _ask(
    scopes: Scopes,
    courier: Courier,
    caller: Caller,
    code: str,
    text: str,
    buttons: Sequence[Button],
) -> Address | None:
    """Where the owner is in the conversation and nobody else is, there; else in their own chat, and
    whoever waits here is told so."""
    theirs = caller.scope == OWNER or scopes.is_owner(caller.channel, caller.sender_id)
    here = caller.address
    place = await courier.ask(
        here if theirs and not is_group(caller.scope) else None, text, buttons
    )
    if place is None:
        return None
    if place != here:
        caller.show("Waiting for the owner to allow this.\n")
    return place
