"""`nanobot memory …` and `nanobot dream`: what is remembered, seen and changed from a terminal.

The work is done by the running gateway, or on the files where none runs; here is only how it is
asked for and shown. Remembered text may hold anything, so what is printed is cleaned of control
characters first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nanobot.cli.admin import asked, put, said_yes, to_json
from nanobot.cli.agent import WrongUse
from nanobot.cli.show import fitted, text
from nanobot.errors import NanobotError
from nanobot_cli.text import clean

# The texts are those of the chat; these are the names that its commands have here.
_SLASH = re.compile(
    r"(?<![\w.~/])/(memory(?= (?:pending|accept|drop|search|why)\b)|dream-restore(?= --)|"
    r"forget(?= --erase)|dream(?=`))"
)
_NAMES = {
    "memory": "nanobot memory",
    "dream-restore": "nanobot memory restore",
    "forget": "nanobot memory forget",
    "dream": "nanobot dream",
}


def run(home: Path, operation: str, arguments: Mapping[str, object], *, as_json: bool) -> int:
    """Do one operation and print what it says."""
    return _print(_asked(home, operation, arguments), as_json=as_json)


def forget(home: Path, wanted: str, scope: str, *, erase: bool, sure: bool, as_json: bool) -> int:
    """`nanobot memory forget TEXT`: shows what would go, asks, and does it.

    Raises `WrongUse` where there is nobody to ask. Returns 1 where nothing was forgotten.
    """
    arguments = {"text": wanted, "scope": scope, "erase": erase}
    if not sure:
        if as_json or not sys.stdin.isatty():
            raise WrongUse(
                "forgetting has to be confirmed", hint="Add --yes to do it without being asked."
            )
        plan = _asked(home, "memory.forget_plan", arguments)
        _print(plan, as_json=False)
        if not plan.get("found"):
            return 1
        if not said_yes("Erase this for good?" if erase else "Forget this?"):
            put("Nothing was changed.\n")
            return 1
    done = _asked(home, "memory.forget", arguments)
    _print(done, as_json=as_json)
    return 0 if done.get("found") else 1


def numbers(words: Sequence[str]) -> list[int]:
    """The numbers that were given, `1 2` and `1,2` alike. Raises `WrongUse`."""
    found = [word for part in words for word in part.split(",") if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in found):
        raise WrongUse(
            "facts are named by their numbers", hint="`nanobot memory pending` has them."
        )
    return [int(word) for word in found]


def _asked(home: Path, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """What an operation answers; what it refuses is said in the names of the command line."""
    try:
        return asked(home, operation, arguments)
    except NanobotError as error:
        error.hint = _named(error.hint)
        raise


def _print(data: Mapping[str, object], *, as_json: bool) -> int:
    if as_json:
        return put(to_json({key: value for key, value in data.items() if key != "text"}))
    return put(fitted(_named(clean(text(data, "text")).rstrip())) + "\n")


def _named(said: str) -> str:
    said = said.replace("`/memory`", "`nanobot memory show`")
    return _SLASH.sub(lambda match: _NAMES[match[1]], said)
