"""The channels: each adapter looks for itself, all at once; and whether they know their owner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nanobot.bus.events import TERMINAL
from nanobot.channel.entry_points import Check, CheckFinding, CheckRequest
from nanobot.cli.doctor.finding import Case, Finding
from nanobot.cli.show import field, records
from nanobot.errors import NanobotError

_SECONDS = 10.0


def check_channels(case: Case) -> Iterator[Finding]:
    """What is enabled, whether it can work, and who is told to be the owner there."""
    enabled = [name for name, channel in case.settings.channels.items() if channel.enabled]
    yield Finding("channels", "ok", ", ".join([TERMINAL, *enabled]))
    for name, found in asyncio.run(_looked_at(case, _checks(enabled))).items():
        for one in found:
            case.hear(name, one.told)
            yield Finding("channels", one.state, f"{name}: {one.text}", one.hint)
    named = {name for name, ids in case.settings.owner.items() if ids}
    if not named.issuperset(enabled):
        named.update(_paired_owners(case.home))
    for name in enabled:
        if name not in named:
            hint = (
                f"Write to the bot, then `nanobot pair approve CODE --owner`, or set owner.{name}."
            )
            yield Finding("channels", "warn", f"{name}: you are not named as its owner", hint)


def _checks(enabled: Sequence[str]) -> Mapping[str, Check]:
    if not enabled:
        return {}
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="nanobot.channel_checks")}
    return {name: points[name].load() for name in enabled if name in points}


async def _looked_at(
    case: Case, checks: Mapping[str, Check]
) -> Mapping[str, Sequence[CheckFinding]]:
    found = await asyncio.gather(*(_look(case, name, check) for name, check in checks.items()))
    return dict(zip(checks, found, strict=True))


async def _look(case: Case, name: str, check: Check) -> Sequence[CheckFinding]:
    options = case.settings.channels[name].options
    folder = case.home / "state" / "channels" / name
    try:
        return await check(CheckRequest(options, folder, case.clock, _SECONDS))
    except NanobotError as error:
        return [CheckFinding("fail", str(error), error.hint)]
    except Exception as error:  # noqa: BLE001 - the boundary: an adapter is anybody's code
        return [CheckFinding("fail", f"this could not be checked: {type(error).__name__}")]


def _paired_owners(home: Path) -> Iterator[str]:
    """The channels on which pairing has made somebody the owner. The file is replaced as a whole,
    so it can be read beside a gateway; asking for it would make a home where none runs."""
    try:
        told = json.loads((home / "state" / "access.json").read_bytes())
    except (OSError, ValueError):
        return
    for known in records(told, "approved") if isinstance(told, dict) else ():
        if known.get("owner") is True:
            yield field(known, "channel")
