"""Time zones by name, and the system's: its name, and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

_ETC = Path("/etc")
_ZONES = "zoneinfo/"


def find_zone(name: str) -> ZoneInfo | None:
    """The zone with this IANA name; None where there is none, or it is no name of one."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return None


def system_zone_name(environ: Mapping[str, str], etc: Path = _ETC) -> str:
    """The IANA name of the system's time zone; empty where it tells none."""
    try:
        written = (etc / "timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        written = ""
    names = (_told(environ), _linked(etc), written)
    return next((name for name in names if name and find_zone(name) is not None), "")


def system_zone(environ: Mapping[str, str], etc: Path = _ETC) -> tzinfo | None:
    """The zone that the C library goes by, which knows when its clocks change; None where it is
    given in another way than by a name or a file."""
    if "TZ" in environ:
        return find_zone(_told(environ))
    if linked := _linked(etc):
        return find_zone(linked)
    try:
        with (etc / "localtime").open("rb") as rules:
            return _Unnamed.from_file(rules)
    except (OSError, ValueError):
        return None


class _Unnamed(ZoneInfo):
    """Rules without a name. Times are copied (`dataclasses.asdict`), which the library refuses
    those that have such a zone."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _told(environ: Mapping[str, str]) -> str:
    return environ.get("TZ", "").removeprefix(":")


def _linked(etc: Path) -> str:
    try:
        return str((etc / "localtime").readlink()).partition(_ZONES)[2]
    except OSError:
        return ""
