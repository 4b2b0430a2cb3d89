"""How the owner lets people and groups in: `nanobot pair …` and the slash command `/pair`.

Only the terminal makes somebody the owner or takes that back: who holds an owner's phone for a
minute cannot keep the house.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from loguru import logger

from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.errors import NanobotError
from nanobot.gateway import pairing_texts as texts
from nanobot.security.access import Access, Approved, Request, Revoked

Arguments = Mapping[str, object]
Welcome = Callable[[str, str, str, str], Awaitable[object]]
"""Sends a text to a chat: channel, chat id, text, thread id. May raise `NanobotError`."""

_USAGE = "[list | CODE | revoke ID]"
_OWNER_OPTION = "--owner"


async def _no_welcome(_channel: str, _chat_id: str, _text: str, _thread_id: str) -> None:
    """Where no gateway runs, nothing can be sent."""


class Pairing:
    """What the terminal and the chat have in common."""

    def __init__(self, access: Access, welcome: Welcome = _no_welcome) -> None:
        self._access, self._welcome = access, welcome

    @property
    def trouble(self) -> str:
        """What is wrong with the list of those who were let in; empty where nothing is."""
        return self._access.load()

    def requests(self) -> Sequence[Request]:
        """Who asked within the hour, the latest last."""
        return self._access.requests()

    async def approve(self, code_or_id: str, *, owner: bool = False) -> Approved:
        """Let somebody in, and tell them. Raises as `Access.approve`."""
        approved = await self._access.approve(code_or_id, owner=owner)
        if approved.news and approved.chat_id:
            try:
                text = texts.welcome(approved.known)
                place = approved.known.channel, approved.chat_id
                await self._welcome(*place, text, approved.thread_id)
            except NanobotError as error:  # they are in all the same
                logger.warning("a welcome could not be sent: {}", error)
        return approved

    async def revoke(self, address: str, *, owners_too: bool) -> Revoked:
        """Shut somebody out by `channel:id`. Raises as `Access.revoke`."""
        channel, _, id = address.partition(":")
        return await self._access.revoke(channel, id, owners_too=owners_too)

    def approved_text(self, approved: Approved) -> str:
        """Who was let in, and what to know about it."""
        has_owner = bool(self._access.owners(approved.known.channel))
        return texts.approved(approved, has_owner=has_owner)

    def listing(self) -> dict[str, object]:
        """All of it, for machines."""
        return {
            "requests": [texts.request_fields(one) for one in self.requests()],
            "approved": [texts.known_fields(one) for one in self._access.approved()],
            "trouble": self.trouble,
        }

    def list_text(self) -> str:
        """All of it, for a chat."""
        return texts.listing(self.requests(), self._access.approved(), self.trouble)


class PairingOperations:
    """The operations named `pair.…`. Whoever reaches these is the owner of the home. Arguments and
    results are JSON; what is changed is told in `text`."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    def table(self) -> Mapping[str, Callable[[Arguments], Awaitable[object]]]:
        """By name, as they are called over the socket."""
        return {"pair.list": self.list, "pair.approve": self.approve, "pair.revoke": self.revoke}

    async def list(self, _: Arguments) -> dict[str, object]:
        """No arguments."""
        return self._pairing.listing()

    async def approve(self, arguments: Arguments) -> dict[str, object]:
        """`code` (or `channel:id`), `owner`."""
        owner = arguments.get("owner") is True
        approved = await self._pairing.approve(_text(arguments, "code"), owner=owner)
        return {
            **texts.known_fields(approved.known),
            "new": approved.news,
            "namesakes": list(approved.namesakes),
            "text": self._pairing.approved_text(approved),
        }

    async def revoke(self, arguments: Arguments) -> dict[str, object]:
        """`id`: `channel:id`."""
        revoked = await self._pairing.revoke(_text(arguments, "id"), owners_too=True)
        return {
            **texts.known_fields(revoked.known),
            "still_in": revoked.still_in,
            "text": texts.revoked(revoked),
        }


class PairCommand:
    """`/pair`, for the owner in a private chat."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    def register(self, registry: CommandRegistry) -> None:
        """Add it to `registry`."""
        registry.register(
            Command("pair", "Let people in, or out", self._run, _USAGE, "owner", immediate=True)
        )

    async def _run(self, call: CommandCall) -> Answer:
        words = call.arguments.split()
        if call.message.is_group:
            return Answer("Others read this chat. Send me /pair in private.")
        if _OWNER_OPTION in words:
            return Answer(texts.only_the_terminal(words))
        if not words or words == ["list"]:
            return Answer(self._pairing.list_text())
        match [words[0].lower(), *words[1:]]:
            case ["revoke", id]:
                return await self._revoke(call, id)
            case ["approve", code]:
                return await self._approve(code)
        return await self._approve(call.arguments)

    async def _approve(self, code_or_id: str) -> Answer:
        approved = await self._pairing.approve(code_or_id)
        return Answer(self._pairing.approved_text(approved))

    async def _revoke(self, call: CommandCall, id: str) -> Answer:
        address = id if ":" in id else f"{call.message.channel}:{id}"
        return Answer(texts.revoked(await self._pairing.revoke(address, owners_too=False)))


def _text(arguments: Arguments, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NanobotError(f"the operation needs a text in {key!r}")
    return value.strip()
