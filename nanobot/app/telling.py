"""What people are told by itself: what Dream did or could not do, what waits for their word, that a
channel is off."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from loguru import logger

from nanobot.agent.notifier import Courier
from nanobot.app.base import Base
from nanobot.bus.events import Address, Button
from nanobot.errors import StorageError
from nanobot.memory.dream import DreamReport
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.views import held_text, shown_of_held
from nanobot.memory.store.pending import PendingFact

_DECISIONS = ("Accept", "Drop")


async def send_digest(courier: Courier, report: DreamReport) -> None:
    """What Dream changed, with a button that takes it back."""
    number = report.undoable
    undo = [Button("Undo", f"/dream-restore --version {number}")] if number else []
    await courier.tell(report.scope, report.digest, undo)


async def send_held(
    courier: Courier, scope: str, facts: Sequence[PendingFact], session: str
) -> None:
    """Facts that wait from now on, with buttons that decide: in the chat that they come from, those
    of Dream in the chat that the owner used last."""
    if not facts or not (session or scope == OWNER):
        return
    codes = " ".join(fact.code for fact in shown_of_held(facts))
    every = " all" if len(facts) > 1 else ""
    buttons = [Button(f"{verb}{every}", f"/memory {verb.lower()} {codes}") for verb in _DECISIONS]
    text = held_text(facts)
    try:
        if session:
            await courier.say_at(Address.of(session), text, buttons)
        else:
            await courier.tell(scope, text, buttons)
    except StorageError as error:
        logger.warning("{}: nobody was told what waits for their word: {}", scope, error)


async def send_trouble(courier: Courier, scope: str, text: str) -> None:
    """Why Dream could not work."""
    logger.warning("dream for {}: {}", scope, text)
    await courier.tell(OWNER, text)


def tell_of_channel(base: Base, channel: str, detail: str) -> None:
    """That a channel stays off."""
    warn_of_channel(base, channel, f"The channel {channel} is off: {detail}")


def warn_of_channel(base: Base, channel: str, text: str) -> None:
    """What is wrong with a channel, told on another one; the same once a day."""
    reason = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = f"off-{channel}-{base.clock.now():%y%m%d}-{reason}"
    telling = base.courier.warn_elsewhere(channel, text, name)
    base.background.start(telling, name=f"warn of {channel}")
