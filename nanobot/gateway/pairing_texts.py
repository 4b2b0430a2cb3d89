"""What the owner reads about pairing, and those who are let in. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nanobot.security.access import Approved, Known, Request, Revoked
from nanobot.security.access.words import address, argument, who

NAMES = "Names are what people call themselves: approve the code that somebody gives you."


def welcome(known: Known) -> str:
    """For those who were let in."""
    if known.kind == "group":
        return "Everyone in this group can talk to me now: mention me, or reply to me."
    owner = ", and you are my owner" if known.owner else ""
    return f"Hello! You can talk to me now{owner}. /help shows what you can type."


def approved(approved: Approved, *, has_owner: bool) -> str:
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


def revoked(revoked: Revoked) -> str:
    """Who was shut out."""
    known = revoked.known
    group = "The group " if known.kind == "group" else ""
    text = f"{group}{who(known)} can no longer talk to me by pairing."
    if revoked.still_in:
        return f"{text} But config.yaml lets them in all the same: change it there."
    return text


def listing(requests: Iterable[Request], known: Iterable[Known], trouble: str) -> str:
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
        "asked_at": asked.at.civil.isoformat(timespec="seconds"),
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
