"""The system's time zone: its name, and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

_ETC = Path("/etc")
_ZONES = "zoneinfo/"


def system_zone_name(environ: Mapping[str, str], etc: Path = _ETC) -> str:
    """The IANA name of the system's time zone; empty where it tells none."""
    try:
        linked = str((etc / "localtime").readlink())
    except OSError:
        linked = ""
    try:
        written = (etc / "timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        written = ""
    names = (_told(environ), linked.partition(_ZONES)[2], written)
    return next((name for name in names if name and _zone(name) is not None), "")


def system_zone(environ: Mapping[str, str], etc: Path = _ETC) -> tzinfo | None:
    """The zone that the C library goes by, which knows when its clocks change; None where it is
    given in another way than by a name or a file."""
    if "TZ" in environ:
        return _zone(_told(environ))
    try:
        with (etc / "localtime").open("rb") as rules:
            return ZoneInfo.from_file(rules, key=system_zone_name({}, etc) or None)
    except (OSError, ValueError):
        return None


def _told(environ: Mapping[str, str]) -> str:
    return environ.get("TZ", "").removeprefix(":")


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # no such zone, or no name of one
        return None
