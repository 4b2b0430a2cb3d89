"""Registers the slash commands of all capabilities.

`TypedKeys` offers to move keys that the owner types into a chat to secrets.env and to remove them.
The offer names no key and stores nothing: `/secret move` searches the owner's messages of the
conversation, so it works after a restart and is safe to repeat."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.commands import ConversationCommands
from nanobot.agent.hooks import TurnEvent
from nanobot.agent.message_tool import resend_command, send_command
from nanobot.agent.run_command import RunCommand
from nanobot.app.base import Base
from nanobot.app.services import Parts
from nanobot.bus.events import Address, Button, InboundMessage
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.config.load import SECRETS_FILE
from nanobot.cron.tool import CronCommand
from nanobot.errors import NanobotError, StorageError
from nanobot.memory.service import MemoryService
from nanobot.memory.service.commands import ForgetQuestions, MemoryCommands
from nanobot.messages import ATTACHED
from nanobot.security.paths import Root
from nanobot.security.redaction import keys_in
from nanobot.session.session import Session
from nanobot.tooling import TurnContext


def register_commands(parts: Parts, restart: Callable[[], None]) -> ConversationCommands:
    """Register the commands that no capability registers itself."""
    base, memory, toolbox, agent = parts.base, parts.memory, parts.toolbox, parts.agent
    commands, stores, scopes = base.commands, base.stores, base.scopes
    run = RunCommand(agent.parts, toolbox.registry)
    conversation = ConversationCommands(
        agent.parts,
        agent.loop,
        stops=(
            ("", run.stop),
            ("subagent", toolbox.helpers.stop),
            ("background command", base.processes.stop),
        ),
        undo=stores.undo,
        has_effects=toolbox.registry.has_effects,
        status=parts.monitoring.status.text,
        restart=restart,
        default_model=base.settings.chat_model,
        named=tuple(base.settings.models),
        served=parts.models.served,
    )
    conversation.register(commands)
    run.register(commands)
    questions = ForgetQuestions(
        Root(stores.shared_state).place("questions"),
        base.clock,
        lambda: f"{secrets.randbelow(10_000):04}",
    )
    parts.platforms.dispatcher.watch = questions.note_reply
    MemoryCommands(
        service=memory.service,
        consolidator=agent.consolidator,
        sessions=stores.sessions,
        scopes=scopes,
        journal=stores.journal,
        clock=base.clock,
        questions=questions,
        changes=stores.undo,
        has_effects=toolbox.registry.has_effects,
    ).register(commands)
    toolbox.approval_commands.register(commands)
    commands.register(send_command(base.splitter, base.bus, base.known_chats, base.clock))
    commands.register(resend_command(stores.journal, base.bus, commands.is_owner))
    CronCommand(toolbox.cron, base.clock, runs=base.settings.cron.enabled).register(commands)
    return conversation


_BUTTONS = (Button("Move it", "/secret move"), Button("Leave it", "/secret keep"))
_OFFER = (
    "Your message seems to contain {}. Move {it} to secrets.env and remove {it} from the "
    "conversation, memory, and the logs? To do so, send `/secret move`. The model may have "
    "read {it} already."
)
_MOVED = (
    "Moved to secrets.env: {names}. After a restart, you can write `${{{first}}}` in "
    "config.yaml. nanobot has removed the key from this conversation. Delete your message in the "
    "chat, too. The chat platform and the model's provider may keep copies, so it is safer to "
    "create a new key."
)
_MOVED_HERE = (
    "Only the worker {worker} has the key. Before you use `${{{first}}}` in config.yaml, copy "
    "its line from {path} on that worker to secrets.env in every other worker's home."
)


_SHORTEST = 16
"""Characters. No key is shorter."""


class TypedKeys:
    """The offers and `/secret`. The environment overrides secrets.env, so its names are taken."""

    def __init__(self, base: Base, service: MemoryService) -> None:
        self._path = base.settings.home / SECRETS_FILE
        self._base, self._service = base, service

    def register(self, commands: CommandRegistry) -> None:
        commands.register(
            Command(
                "secret",
                "Move keys that you typed here to secrets.env",
                self._run,
                "move | keep",
                allowed="owner",
                ordered=True,
            )
        )

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Make the offer if the owner typed a key into a message."""
        if not isinstance(event, InboundMessage) or len(event.content) < _SHORTEST:
            return
        typed = event.origin.initiator == "person" and not (
            event.forwarded_from or event.origin.by_program
        )
        keys = keys_in(event.content) if typed else {}
        if keys and self._base.scopes.is_owner(event.channel, event.sender_id):
            self._base.background.start(self._offer(event, keys), name="offer to move a key")

    async def _offer(self, message: InboundMessage, keys: Mapping[str, str]) -> None:
        what, it = ("a key", "it") if len(keys) == 1 else (f"{len(keys)} keys", "them")
        try:
            there = Address.of(message.session_key)
            await self._base.notifier.send(there, _OFFER.format(what, it=it), _BUTTONS)
        except StorageError as error:
            logger.warning("could not offer to move a key: {}", error)

    async def _run(self, call: CommandCall) -> Answer:
        if call.arguments == "keep":
            return Answer("The key was not moved.")
        if call.arguments != "move":
            return Answer("Usage: /secret move, or /secret keep")
        keys = await asyncio.to_thread(self._find_keys, call.session)
        if not keys:
            return Answer("Your messages in this conversation contain no keys.")
        names = await asyncio.to_thread(self._keep, keys)
        left = [place for key in keys for place in await self._erase(key)]
        lines = [_MOVED.format(names=", ".join(names), first=names[0])]
        if worker := self._base.worker:
            lines.append(_MOVED_HERE.format(worker=worker, path=self._path, first=names[0]))
        if left:
            lines += ["The key is still in:", *(f"- {one}" for one in dict.fromkeys(left))]
        return Answer("\n".join(lines))

    async def _erase(self, key: str) -> list[str]:
        """Erase a key everywhere except in its new place. Return the places that still have it."""
        still = (await self._service.erase_text(key)).data["left"]
        assert isinstance(still, list)
        return [str(one) for one in still if not str(one).startswith(SECRETS_FILE)]

    def _find_keys(self, session: Session) -> dict[str, str]:
        """Return the keys in the owner's own words, including the conversation's archive."""
        stored = self._base.stores.sessions.read_messages(session.key)
        mine = (m for m in (*stored, *session.messages) if m.role == "user")
        found = (keys_in(m.content) for m in mine if m.origin in {"", ATTACHED})
        return {key: name for keys in found for key, name in keys.items()}

    def _keep(self, keys: Mapping[str, str]) -> list[str]:
        """Write the keys to secrets.env and return their names there. Raises `NanobotError`."""
        from nanobot.config.changes import ConfigEdit, ExistingFiles, write

        home, new = self._base.settings.home, dict[str, str]()
        try:
            files = ExistingFiles.read(home, os.environ)
            for key, usual in keys.items():
                value = key.replace("\n", "\\n")  # a private key has several lines
                taken = replace(files, environ={**os.environ, **new})
                new[taken.free_name(usual, value)] = value
            write(home, files, ConfigEdit(secrets=new))
        except (NanobotError, ValueError) as error:
            hint = "Nothing was removed from the conversation."
            raise NanobotError(f"{SECRETS_FILE} cannot be changed: {error}", hint=hint) from error
        return list(new)
