"""The heartbeat: at intervals the agent does the tasks in HEARTBEAT.md.

Beats come at fixed times (`30m`: every full and half hour of UTC), so a restart neither repeats nor
moves them. Beats that passed while nanobot was down are skipped. Beats outside the active hours are
combined into one when the hours begin. A beat is skipped while the last one is running, or if
HEARTBEAT.md has no tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, time, timedelta

from msgspec import Struct

from nanobot.bus.events import NANOBOT, InboundMessage, Origin
from nanobot.clock import Clock
from nanobot.cron.job import SMALL_STEP, address_of, moment_text
from nanobot.messages import SILENT
from nanobot.tasks import Periodic
from nanobot.templates import render
from nanobot.tooling import OWNER

SESSION = "heartbeat:owner"
"""The conversation of its answers."""

MOST_TEXT = 8_000
"""Characters of HEARTBEAT.md that are read."""

LOOK_SECONDS = 60.0
"""Interval between checks of the clock."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_COMMENT = r"(?s)<!--.*?-->"
_NOTHING = r"#.*|[-*+]?\s*(\[[xX]\].*|\[ \])?"


class ActiveHours(Struct, frozen=True):
    """From `start` to before `end` in local time. The hours span midnight if `end` is earlier, and
    the whole day if both are equal."""

    start: time
    end: time

    def cover(self, moment: datetime) -> bool:
        """Check whether `moment` is within the hours, in its own zone."""
        now = moment.time()
        if self.start < self.end:
            return self.start <= now < self.end
        return self.start == self.end or now >= self.start or now < self.end


def has_tasks(text: str, template: str) -> bool:
    """Check whether HEARTBEAT.md has a task: a line that is not a heading, a comment, a done item
    or a line of the template."""
    known = {line.strip() for line in template.splitlines()}
    lines = (line.strip() for line in re.sub(_COMMENT, "", text).splitlines())
    return any(line not in known and not re.fullmatch(_NOTHING, line) for line in lines)


def last_beat(moment: datetime, every: timedelta) -> datetime:
    """Return the last beat at or before `moment`, in UTC."""
    return _EPOCH + (moment - _EPOCH) // every * every


class Heartbeat(Periodic):
    """Beats at the interval `every`, or never if it is None. `read` returns the text of
    HEARTBEAT.md, `template` is its initial text. `chat` returns the address of the owner's last
    chat, or an empty text. Both may block. `busy` is as in `CronService`."""

    def __init__(
        self,
        read: Callable[[], str],
        template: str,
        chat: Callable[[], str],
        publish: Callable[[InboundMessage], Awaitable[object]],
        clock: Clock,
        every: timedelta | None,
        hours: ActiveHours,
        busy: Callable[[str], Awaitable[bool]],
    ) -> None:
        super().__init__(clock, LOOK_SECONDS)
        self._read, self._template, self._chat = read, template, chat
        self._publish, self._interval, self._hours, self._busy = publish, every, hours, busy
        now = clock.now()
        self._last = now if every is None else last_beat(now, every)
        if every is not None and not hours.cover(now):
            self._last -= every  # this beat may be pending until the hours begin

    async def run_once(self) -> None:
        if self._interval is None:
            return
        now = self._clock.now()
        beat, last = last_beat(now, self._interval), self._last
        if beat > last and self._hours.cover(now):
            self._last = beat
            await self._beat(beat)
        elif last - beat > SMALL_STEP:  # the clock was set back far
            self._last = beat

    async def show(self, _: Mapping[str, object]) -> dict[str, object]:
        """The operation `heartbeat.show`.

        Return the state (`on`), the interval in `seconds`, the `next` beat within the hours `start`
        to `end`, the `text` of HEARTBEAT.md, and `asks` if it has tasks. `session` is the
        conversation of the answers."""
        text, now = await asyncio.to_thread(self._read), self._clock.now()
        every, hours, following = self._interval, self._hours, None
        if every is not None:
            following = last_beat(now, every).astimezone(now.tzinfo) + every
            if not hours.cover(following):
                begin = hours.start
                start = following.replace(hour=begin.hour, minute=begin.minute, second=0)
                following = start if start >= following else start + timedelta(days=1)
        return {
            "on": every is not None,
            "seconds": int(every.total_seconds()) if every else 0,
            "start": hours.start.isoformat("minutes"),
            "end": hours.end.isoformat("minutes"),
            "next": following.isoformat(timespec="minutes") if following else None,
            "text": text[:MOST_TEXT],
            "asks": has_tasks(text, self._template),
            "session": SESSION,
        }

    async def _beat(self, beat: datetime) -> None:
        if await self._busy(SESSION):  # the last beat is still running
            return
        text = await asyncio.to_thread(self._read)
        chat = await asyncio.to_thread(self._chat)
        if not has_tasks(text, self._template) or not chat:
            return
        there, now = address_of(chat), self._clock.now()
        assert now.tzinfo is not None
        due, asked = moment_text(beat, now.tzinfo), text[:MOST_TEXT].strip()
        content = render("heartbeat.md", due=due, text=asked, silent=SILENT)
        await self._publish(
            InboundMessage(
                there.channel,
                there.chat_id,
                sender_id=NANOBOT,
                content=content.rstrip("\n"),
                event_id=f"heartbeat:{beat.isoformat()}",
                timestamp=now,
                thread_id=there.thread_id,
                session_override=SESSION,
                origin=Origin("heartbeat", OWNER, mark=NANOBOT),
            )
        )
