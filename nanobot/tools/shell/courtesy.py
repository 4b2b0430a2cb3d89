"""Slips that would ruin the computer, refused where a command runs without a sandbox.

A courtesy and not a boundary: whoever wants to can say the same in words that no pattern knows.
Pure, and linear in the command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile

_DISK = r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|disk\d|mapper/)"
_OF_A_DISK = re.compile(f"of={_DISK}")
_INTO_A_DISK = re.compile(f">[ \t]{{0,9}}{_DISK}")
_FORK_BOMB = re.compile(r"([\w:.]{1,30})\(\)\{\1\|\1&\}")
_BETWEEN_COMMANDS = re.compile(r"[;&|\n(){}`]")

_EVERYTHING = frozenset({"/", "/*", "~", "~/", "~/*"})
_BEFORE_A_COMMAND = frozenset({"sudo", "exec", "nohup", "time", "then", "do", "else", "!"})
_ON_DISKS = frozenset({"wipefs", "blkdiscard", "sgdisk", "sfdisk", "fdisk", "parted"})
_ENDS = frozenset({"shutdown", "reboot", "poweroff", "halt"})


def slip_in(command: str) -> str:
    """What `command` would do that nobody can mean (`deletes everything`), or nothing."""
    if _FORK_BOMB.search("".join(command.split())):
        return "starts processes without end"
    home_named = command.replace("${HOME}", "~").replace("$HOME", "~")
    parts = _BETWEEN_COMMANDS.split(home_named.replace('"', "").replace("'", ""))
    return next((slip for part in parts if (slip := _slip(part))), "")


def _slip(part: str) -> str:
    if _INTO_A_DISK.search(part):
        return "overwrites a disk"
    words = list(dropwhile(_BEFORE_A_COMMAND.__contains__, part.split()))
    return _by_name(words[0].rpartition("/")[2], words[1:]) if words else ""


def _by_name(name: str, words: Sequence[str]) -> str:
    if name == "rm" and _recursive(words) and _EVERYTHING.intersection(words):
        return "deletes everything"
    if name in ("chmod", "chown") and _recursive(words) and _EVERYTHING.intersection(words):
        return "changes every file"
    if name.partition(".")[0] == "mkfs" or name in _ON_DISKS:
        return "changes a disk"
    if name == "dd" and any(map(_OF_A_DISK.match, words)):
        return "overwrites a disk"
    told = _ENDS.intersection(words) if name == "systemctl" else ()
    if name in _ENDS or told or (name == "init" and words[:1] in (["0"], ["6"])):
        return "stops the computer"
    return ""


def _recursive(words: Sequence[str]) -> bool:
    flags = [word for word in words if word.startswith("-")]
    return any(
        flag == "--recursive" or (not flag.startswith("--") and "r" in flag.lower())
        for flag in flags
    )
