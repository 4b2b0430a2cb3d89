"""Backups: whether they are made, and how old the last one is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.upkeep.backups import folder_of, found

_GRACE = timedelta(days=1)
"""How late a backup may be: a machine that was off makes it soon after its start."""


def check_backups(case: Case) -> Iterator[Finding]:
    """Whether a backup is there that is as new as the schedule promises."""
    if not case.home.is_dir():
        return
    settings = case.settings.backup
    folder, now = folder_of(case.home, settings.folder), case.clock.now()
    made = [stored.made_at for stored in found(folder)]
    newest = made[0].astimezone(now.tzinfo) if made else None
    shown = f"the newest is of {newest:%Y-%m-%d %H:%M}" if newest else "there is none"
    if not settings.schedule:
        hint = "Set backup.schedule to have them made, best with backup.folder on another disk."
        text = f"none are made by themselves; {shown} in {folder}"
        yield Finding("backups", "ok" if newest else "warn", text, hint)
    elif folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        hint = "Mend its permissions, or set backup.folder to another one."
        yield Finding("backups", "fail", f"{folder} cannot be written", hint)
    elif newest is None or _is_late(settings.schedule, newest, now):
        hint = "The gateway makes them while it runs. `nanobot backup` makes one now."
        text = f"they are due at `{settings.schedule}`; {shown} in {folder}"
        yield Finding("backups", "warn", text, hint)
    else:
        yield Finding("backups", "ok", f"{shown} in {folder}")


def _is_late(schedule: str, newest: datetime, now: datetime) -> bool:
    from nanobot.cron.schedule import parse

    due = parse(schedule).next_after(newest, now.tzinfo)
    return due is not None and due + _GRACE < now
