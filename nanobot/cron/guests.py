"""What others than the owner may have scheduled: little, since every run is paid for by the owner.
Pure."""

from __future__ import annotations

from datetime import timedelta

from nanobot.cron.schedule import Cron, Every, Schedule, ScheduleError

MOST_OF_OTHERS = 5
"""Jobs of one scope that is not the owner's."""

_LEAST_INTERVAL = timedelta(hours=1)


def refuse_too_often(schedule: Schedule) -> None:
    """Raise `ScheduleError` for one that comes due twice within an hour."""
    match schedule:
        case Every(interval=interval):
            often = interval < _LEAST_INTERVAL
        case Cron(text=text):
            often = not text.split()[0].isdecimal()  # one minute of the hour, whatever the hours
        case _:
            often = False
    if often:
        reason = "for others than the owner, runs must be at least an hour apart"
        raise ScheduleError(schedule.text, reason)
