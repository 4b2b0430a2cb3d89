"""Pairing: how the owner lets people and groups in, by `nanobot pair …` or `/pair`; their texts.

Only the terminal makes somebody the owner or takes that back: a minute with an owner's phone must
not be enough to take over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from loguru import logger

from nanobot.bus.events import Address
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry, Operation, text_argument
from nanobot.errors import NanobotError
from nanobot.security.access import Access, Approved, Request, Revoked
from nanobot.security.pairing import Known, address, argument, who

NAMES = "Names are what people call themselves: approve the code that somebody gives you."


def welcome_text(known: Known) -> str:
    """For those who were let in."""
    if known.kind == "group":
        return "Everyone in this group can talk to me now: mention me, or reply to me."
    owner = ", and you are my owner" if known.owner else ""
    return f"Hello! You can talk to me now{owner}. /help shows what you can type."


def approved_text(approved: Approved, *, has_owner: bool) -> str:
    """Who was let in. Without an owner on that channel, how to become it."""
    known = approved.known
    if not approved.news:
        owner = " as the owner" if known.owner else ""
        text = f"{who(known)} was let in before{owner}; nothing changed."
    elif known.kind == "group":
        text = f"Everyone in the group {who(known)} can talk to me now."
    else:
        owner = ", as the owner" if known.owner else ""
        text = f"{who(known)} can talk to me now{owner}."
    if approved.namesakes:
        text += f" Careful: {_codes(approved.namesakes)} goes by the same name."
    if known.kind == "person" and not has_owner:
        text += f"\nIf that is you: `nanobot pair approve {argument(known)} --owner`"
    return text


def revoked_text(revoked: Revoked) -> str:
    """Who was shut out."""
    known = revoked.known
    group = "The group " if known.kind == "group" else ""
    text = f"{group}{who(known)} can no longer talk to me by pairing."
    if revoked.still_in:
        return f"{text} But config.yaml lets them in all the same: change it there."
    return text


def listing_text(requests: Iterable[Request], known: Iterable[Known], trouble: str) -> str:
    """Who asked and who was let in, as Markdown for a chat."""
    asked = [_request_line(one) for one in requests]
    inside = [f"- {who(one)}{_role(one)}" for one in known]
    blocks = [f"Careful: {trouble}"] if trouble else []
    if asked:
        blocks.append("\n".join(("Asked within the hour:", *asked, "", NAMES)))
    if inside:
        blocks.append("\n".join(("Let in by pairing:", *inside)))
    return "\n\n".join(blocks or ["Nobody has asked within the hour, and nobody was let in yet."])


def only_the_terminal(words: Sequence[str]) -> str:
    """For who asks in a chat to make somebody the owner."""
    given = next((word for word in words if word not in {"approve", "--owner"}), "CODE")
    given = given.replace("`", "'")
    return f"Only the terminal makes an owner: `nanobot pair approve {given} --owner`"


def request_fields(request: Request) -> dict[str, object]:
    """A request, for machines. The code is left out once it is not valid any more."""
    asked = request.asked
    return {
        "channel": asked.channel,
        "kind": asked.kind,
        "id": asked.id,
        "address": address(asked),
        "name": asked.name,
        "code": asked.code if request.seconds_left else "",
        "seconds_left": round(request.seconds_left),
        "asked_at": asked.at.isoformat(timespec="seconds"),
        "namesakes": list(request.namesakes),
    }


def known_fields(known: Known) -> dict[str, object]:
    """Somebody who was let in, for machines."""
    return {
        "channel": known.channel,
        "kind": known.kind,
        "id": known.id,
        "address": address(known),
        "name": known.name,
        "owner": known.owner,
        "since": known.since.isoformat(timespec="seconds"),
    }


def _request_line(request: Request) -> str:
    asked = request.asked
    group = "the group " if asked.kind == "group" else ""
    minutes = max(1, round(request.seconds_left / 60))
    code = f"`{asked.code}` ({minutes} min)" if request.seconds_left else "code no longer valid"
    same = f"; {_codes(request.namesakes)} goes by the same name" if request.namesakes else ""
    return f"- {group}{who(asked)}: {code}{same}"


def _role(known: Known) -> str:
    return {"group": ", a group", "person": ", owner" if known.owner else ""}[known.kind]


def _codes(addresses: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in addresses)


Welcome = Callable[[Address, str], Awaitable[object]]
"""Sends a text to a chat. May raise `NanobotError`."""


class Pairing:
    """`/pair`, for the owner in a private chat, and the operations `pair.…`: whoever reaches these
    is the owner of the home. Arguments and results of operations are JSON; what is changed is told
    in `text`. Without `welcome`, where no gateway runs, nobody is told that they were let in."""

    def __init__(self, access: Access, welcome: Welcome | None = None) -> None:
        self._access, self._welcome = access, welcome

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return {"pair.list": self.list, "pair.approve": self.approve, "pair.revoke": self.revoke}

    def register(self, registry: CommandRegistry) -> None:
        """Add `/pair` to `registry`."""
        usage = "[list | CODE | revoke ID]"
        registry.register(
            Command("pair", "Let people in, or out", self._run, usage, "owner", immediate=True)
        )

    async def list(self, _: Mapping[str, object]) -> dict[str, object]:
        """No arguments."""
        return {
            "requests": [request_fields(one) for one in self._access.requests()],
            "approved": [known_fields(one) for one in self._access.approved()],
            "trouble": self._access.load(),
        }

    async def approve(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """`code` (or `channel:id`), `owner`."""
        owner = arguments.get("owner") is True
        approved, text = await self._approve(text_argument(arguments, "code"), owner=owner)
        return {
            **known_fields(approved.known),
            "new": approved.news,
            "namesakes": [*approved.namesakes],
            "text": text,
        }

    async def revoke(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """`id`: `channel:id`."""
        revoked = await self._revoke(text_argument(arguments, "id"), owners_too=True)
        return {
            **known_fields(revoked.known),
            "still_in": revoked.still_in,
            "text": revoked_text(revoked),
        }

    async def _run(self, call: CommandCall) -> Answer:
        words = call.arguments.split()
        if call.message.is_group:
            return Answer("Others read this chat. Send me /pair in private.")
        if "--owner" in words:
            return Answer(only_the_terminal(words))
        if not words or words == ["list"]:
            access = self._access
            return Answer(listing_text(access.requests(), access.approved(), access.load()))
        match [words[0].lower(), *words[1:]]:
            case ["revoke", id]:
                address = id if ":" in id else f"{call.message.channel}:{id}"
                return Answer(revoked_text(await self._revoke(address, owners_too=False)))
            case ["approve", code]:
                return Answer((await self._approve(code))[1])
        return Answer((await self._approve(call.arguments))[1])

    async def _approve(self, code_or_id: str, *, owner: bool = False) -> tuple[Approved, str]:
        """Let somebody in, and tell them; who it was, and what to say of it."""
        approved = await self._access.approve(code_or_id, owner=owner)
        known = approved.known
        if approved.news and approved.chat_id and self._welcome is not None:
            there = Address(known.channel, approved.chat_id, approved.thread_id)
            try:
                await self._welcome(there, welcome_text(known))
            except NanobotError as error:  # they are in all the same
                logger.warning("a welcome could not be sent: {}", error)
        has_owner = bool(self._access.owners(known.channel))
        return approved, approved_text(approved, has_owner=has_owner)

    async def _revoke(self, address: str, *, owners_too: bool) -> Revoked:
        """Shut somebody out by `channel:id`."""
        channel, _, id = address.partition(":")
        return await self._access.revoke(channel, id, owners_too=owners_too)
