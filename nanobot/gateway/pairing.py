"""Pairing: how the owner gives people and groups access, by `nanobot pair …` or `/pair`, and its
texts.

Only the terminal can add or remove an owner: a minute with an owner's phone must not be enough to
take over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from loguru import logger

from nanobot.bus.events import Address
from nanobot.channel import Operation
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry, text_argument
from nanobot.errors import NanobotError
from nanobot.security.access import Access, OpenRequest, PairingApproval, Revocation
from nanobot.security.pairing import Grant, PairingRequest, address, label, shell_argument

_NAMES = "People choose these names themselves. Approve only a code that someone gave you."


def _render_approval(approved: PairingApproval, *, has_owner: bool) -> str:
    """Return the text of an approval. Without an owner on that channel, it explains how to become
    one."""
    grant, owner = approved.grant, ", as the owner" if approved.grant.owner else ""
    everyone = "Everyone in the group " if grant.kind == "group" else ""
    text = f"{everyone}{label(grant)} now has access{owner}."
    if not approved.news:
        text = f"{label(grant)} already had access{owner}. Nothing changed."
    if grant.kind == "person" and not has_owner:
        text += f"\nIf this is you, run `nanobot pair approve {shell_argument(grant)} --owner`"
    return text


def _render_revocation(revoked: Revocation) -> str:
    group = "The group " if revoked.grant.kind == "group" else ""
    text = f"{group}{label(revoked.grant)} no longer has access through pairing."
    still = " But config.yaml still gives them access. Change it there."
    return f"{text}{still}" if revoked.still_in else text


def _render_list(requests: Iterable[OpenRequest], grants: Iterable[Grant], problem: str) -> str:
    """Return the requests and approvals as Markdown for a chat."""
    lines = []
    for one in requests:
        minutes = max(1, round(one.seconds_left / 60))
        code = (
            f"`{one.request.code}` ({minutes} min)" if one.seconds_left else "the code has expired"
        )
        group = "the group " if one.request.kind == "group" else ""
        lines.append(f"- {group}{label(one.request)}: {code}")
    roles = {"group": ", a group", "person": ""}
    inside = [f"- {label(g)}{', owner' if g.owner else roles[g.kind]}" for g in grants]
    blocks = [f"Warning: {problem}"] if problem else []
    if lines:
        blocks.append("\n".join(("Requests in the last hour:", *lines, "", _NAMES)))
    if inside:
        blocks.append("\n".join(("Approved through pairing:", *inside)))
    return "\n\n".join(blocks or ["No pending requests and no approvals."])


def _fields(one: PairingRequest | Grant) -> dict[str, object]:
    """Return the requester or grantee for programs."""
    names = ("channel", "kind", "id", "name")
    return {**{name: getattr(one, name) for name in names}, "address": address(one)}


def _grant_fields(grant: Grant) -> dict[str, object]:
    since = grant.since.isoformat(timespec="seconds")
    return {**_fields(grant), "owner": grant.owner, "since": since}


Welcome = Callable[[Address, str], Awaitable[object]]
"""Sends a text to a chat. May raise `NanobotError`."""


class Pairing:
    """`/pair`, for the owner in a private chat, and the operations `pair.…`, only for the owner of
    the home. Arguments and results of operations are JSON, with a report in `text`. Without
    `welcome`, if no gateway runs, no welcome is sent."""

    def __init__(self, access: Access, welcome: Welcome | None = None) -> None:
        self._access, self._welcome = access, welcome

    def table(self) -> Mapping[str, Operation]:
        return {"pair.list": self.list, "pair.approve": self.approve, "pair.revoke": self.revoke}

    def register(self, registry: CommandRegistry) -> None:
        usage = "[list | CODE | revoke ID]"
        registry.register(
            Command("pair", "Give or revoke access", self._run, usage, "owner", immediate=True)
        )

    async def list(self, _: Mapping[str, object]) -> dict[str, object]:
        requests = []
        for one in self._access.requests():
            about: dict[str, object] = {
                "code": one.request.code if one.seconds_left else "",  # not an expired one
                "seconds_left": round(one.seconds_left),
                "asked_at": one.request.at.isoformat(timespec="seconds"),
            }
            requests.append({**_fields(one.request), **about})
        return {
            "requests": requests,
            "approved": [_grant_fields(one) for one in self._access.grants()],
            "trouble": self._access.load(),
        }

    async def approve(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Approve `code` (or `channel:id`), with `owner` as an owner."""
        owner = arguments.get("owner") is True
        approved, text = await self._approve(text_argument(arguments, "code"), owner=owner)
        return {
            **_grant_fields(approved.grant),
            "new": approved.news,
            "text": text,
        }

    async def revoke(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Revoke `id` (`channel:id`). If `owners_too` is false, owners are kept."""
        owners_too = arguments.get("owners_too") is not False
        revoked = await self._revoke(text_argument(arguments, "id"), owners_too=owners_too)
        return {
            **_grant_fields(revoked.grant),
            "still_in": revoked.still_in,
            "text": _render_revocation(revoked),
        }

    async def _run(self, call: CommandCall) -> Answer:
        words = call.arguments.split()
        if call.message.is_group:
            return Answer("Other people can read this chat. Send /pair in a private chat.")
        if "--owner" in words:
            return Answer(
                "Owners can only be added in the terminal: `nanobot pair approve CODE --owner`"
            )
        if not words or words == ["list"]:
            access = self._access
            return Answer(_render_list(access.requests(), access.grants(), access.load()))
        match [words[0].lower(), *words[1:]]:
            case ["revoke", id]:
                address = id if ":" in id else f"{call.message.channel}:{id}"
                return Answer(_render_revocation(await self._revoke(address, owners_too=False)))
            case ["approve", *code]:
                return Answer((await self._approve(" ".join(code)))[1])
        return Answer((await self._approve(call.arguments))[1])

    async def _approve(
        self, code_or_id: str, *, owner: bool = False
    ) -> tuple[PairingApproval, str]:
        """Give access and send a welcome. Return the approval and its text."""
        approved = await self._access.approve(code_or_id, owner=owner)
        grant = approved.grant
        if approved.news and approved.chat_id and self._welcome is not None:
            there = Address(grant.channel, approved.chat_id, approved.thread_id)
            role = " as the owner" if grant.owner else ""
            text = f"Hello! You now have access{role}. Send /help to list the commands."
            if grant.kind == "group":
                text = (
                    "Everyone in this group can talk to me now. Mention me, or reply to one of "
                    "my messages."
                )
            try:
                await self._welcome(there, text)
            except NanobotError as error:  # they have access anyway
                logger.warning("could not send a welcome: {}", error)
        has_owner = bool(self._access.owners(grant.channel))
        return approved, _render_approval(approved, has_owner=has_owner)

    async def _revoke(self, address: str, *, owners_too: bool) -> Revocation:
        """Revoke the access of `channel:id`."""
        channel, _, id = address.partition(":")
        return await self._access.revoke(channel, id, owners_too=owners_too)
