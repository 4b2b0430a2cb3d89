"""What people are told about access. A stranger learns that this is a private nanobot, no more."""

from __future__ import annotations

import shlex

from nanobot.errors import NanobotError
from nanobot.security.access.book import Asked, Kind, Known
from nanobot.security.names import printable


def address(one: Asked | Known) -> str:
    """What somebody is called in commands: `telegram:7`, on one line whatever the id is."""
    return printable(f"{one.channel}:{one.id}").replace("`", "'")


def argument(one: Asked | Known) -> str:
    """The address as it is typed into a shell, so that a strange id is nothing but an id there."""
    return shlex.quote(address(one))


def who(one: Asked | Known) -> str:
    """Name and address, for people. Neither can end its code span, so a name cannot pretend to be
    more than a name, and is no Markdown."""
    return f"`{one.name}` (`{address(one)}`)" if one.name else f"`{address(one)}`"


def greeting(kind: Kind, code: str) -> str:
    """What a stranger, or a group, is answered."""
    if kind == "group":
        return (
            "This is a private nanobot, and this group is not on its list. Its owner can let"
            f" everyone in this group talk to it, within ten minutes: send me `/pair {code}` in"
            f" private, or run `nanobot pair approve {code}`."
        )
    return (
        f"This is a private nanobot. Your pairing code: `{code}` (it holds for ten minutes).\n"
        f"Its owner lets you in with `nanobot pair approve {code}`"
        " (and `--owner` if that is you)."
    )


def not_a_code() -> NanobotError:
    """What was given looks like no code."""
    return NanobotError(
        "this is not a pairing code",
        hint="A code has eight letters and digits; an id is written as CHANNEL:ID.",
    )


def wrong_code() -> NanobotError:
    """Nobody was given this code, or it was long ago."""
    return NanobotError(
        "no open request has this code",
        hint="Look for a typing mistake. A code holds for ten minutes and works once.",
    )


def locked(seconds: float) -> NanobotError:
    """Too many wrong codes; `seconds` until the next one may be tried."""
    minutes = max(1, round(seconds / 60))
    return NanobotError(
        "too many wrong codes were tried, so no code is taken for now",
        hint=f"Try again in {minutes} min. By its id (CHANNEL:ID) a request can be approved at"
        " once.",
    )


def used(asked: Asked) -> NanobotError:
    """The code has let somebody in."""
    return NanobotError(f"this code was used already, for {who(asked)}")


def expired(asked: Asked) -> NanobotError:
    """The code is too old; the request can still be approved by its id."""
    return NanobotError(
        f"this code, of {who(asked)}, is older than ten minutes",
        hint=f"If you are sure who that is, approve `{address(asked)}` instead of the code. An hour"
        " after the last one they get a new code when they write.",
    )


def nobody_asked(id: str) -> NanobotError:
    """No request has this address."""
    return NanobotError(
        f"nobody with the id {printable(id)} has asked within the hour",
        hint="They have to write to me first, or stand in `allow_from` in config.yaml.",
    )


def no_owner(group: Asked | Known) -> NanobotError:
    """A group was to be made the owner."""
    return NanobotError(f"{who(group)} is a group, and only a person can be the owner")


def owner_stays(owner: Known) -> NanobotError:
    """An owner was to be shut out where only others may be."""
    return NanobotError(
        f"{who(owner)} is the owner",
        hint=f"Only the terminal can take that back: `nanobot pair revoke {argument(owner)}`",
    )


def not_paired(address: str, *, configured: bool) -> NanobotError:
    """Pairing has nothing to take back; `configured`: config.yaml has."""
    return NanobotError(
        f"{printable(address)} was not let in by pairing",
        hint="config.yaml lets them in: change it there." if configured else "",
    )
