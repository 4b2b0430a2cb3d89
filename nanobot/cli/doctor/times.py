"""The clock: its zone, and whether it is right."""

from __future__ import annotations

from collections.abc import Iterator

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.times import duration

_OFF_SECONDS = 120.0


def check_time(case: Case) -> Iterator[Finding]:
    """What time it is here, and what those say who were asked."""
    zone = case.settings.agent.timezone
    now = case.clock.now()
    shown = f"{now:%Y-%m-%d %H:%M} {now.isoformat()[-6:]}"
    if zone or now.utcoffset():
        yield Finding("time", "ok", f"{shown}, {zone or 'as the system has it'}")
    else:
        hint = "Set agent.timezone (such as Europe/Berlin) if that is not your time."
        yield Finding("time", "warn", f"{shown}: the system has no time zone of its own", hint)
    off = [(who, ahead) for who, ahead in case.heard.times if abs(ahead) > _OFF_SECONDS]
    for who, ahead in off[:1]:
        way = "ahead of" if ahead > 0 else "behind"
        hint = "`timedatectl set-ntp true` keeps the clock right; reminders come at wrong times."
        span = duration(60 * round(abs(ahead) / 60))
        yield Finding("time", "warn", f"this machine's clock is {span} {way} {who}'s", hint)
