"""Stories beyond files and notes: reminders, pages of the web, commands, skills, and what to say
when a scheduled job runs."""

from __future__ import annotations

import re
from datetime import datetime

from nanobot.messages import SILENT
from nanobot.providers.offline.intents import (
    CancelReminder,
    FetchPage,
    FindFiles,
    Intent,
    ListFiles,
    ListReminders,
    ReadFile,
    ReadSkill,
    Recite,
    Remind,
    RunCommand,
    SearchFiles,
    SearchWeb,
)
from nanobot.providers.offline.prompt import Said
from nanobot.providers.offline.steps import Call, Story
from nanobot.providers.offline.texts import clipped, say, trouble
from nanobot.providers.offline.times import timed

Errand = (
    Remind | ListReminders | CancelReminder | FetchPage | SearchWeb | RunCommand | ReadSkill
)  # fmt: skip

_DONE_BY_A_JOB = (
    ReadFile, ListFiles, FindFiles, SearchFiles, FetchPage, SearchWeb, RunCommand, Recite
)  # fmt: skip
"""What a scheduled job can have done; everything else it says is told as a reminder."""

_NEXT = re.compile(r"next (?P<when>[^.]+)\.$")
_PAGE = re.compile(r"URL: (?P<url>\S+)\n(?:Title: (?P<title>[^\n]*)\n)?\n?(?P<text>.*)", re.DOTALL)
_SHOWN_OF_A_PAGE = 2_000


def errand(wish: Errand, said: Said, chinese: bool) -> Story:
    """Do what was asked in `said`."""
    match wish:
        case Remind():
            story = _remind(wish, said, chinese)
        case ListReminders():
            story = _show("cron", {"action": "list"}, "reminders", chinese)
        case CancelReminder():
            story = _cancel(wish, chinese)
        case FetchPage():
            story = _fetch(wish, chinese)
        case SearchWeb():
            story = _show("web_search", {"query": wish.query}, "found", chinese)
        case RunCommand():
            story = _show("exec", {"command": wish.command}, "ran", chinese)
        case ReadSkill():
            story = _show("read_skill", {"name": wish.name}, "skill_says", chinese)
    return story


def only_said(said: Said, intents: list[Intent], chinese: bool) -> str | None:
    """What to say where nobody is there: the text of a reminder, nothing for a heartbeat. None
    where a job has something done."""
    if said.begun_by == "heartbeat":
        return SILENT
    if intents and all(isinstance(intent, _DONE_BY_A_JOB) for intent in intents):
        return None
    text = said.content
    if len(intents) == 1 and isinstance(intents[0], Remind):
        text = intents[0].text
        text = found.text if (found := timed(text, None)) else text
    return say("reminder", chinese, text=text)


def _remind(wish: Remind, said: Said, chinese: bool) -> Story:
    now = datetime.fromisoformat(f"{said.date}T{said.time}") if said.date else None
    found = timed(wish.text, now)
    if found is None:
        return (yield from _note_instead(wish.text, "noted_no_time", chinese))
    arguments = {"action": "remind", "schedule": found.schedule, "message": found.text}
    outcome = yield Call("cron", arguments)
    if outcome.missing:
        return (yield from _note_instead(wish.text, "noted_reminder", chinese))
    if outcome.failed:
        return trouble(outcome.missing, "cron", outcome.reason, chinese)
    next_time = _NEXT.search(outcome.text)
    when = next_time["when"] if next_time else found.schedule
    return say("will_remind", chinese, text=found.text, when=when)


def _note_instead(text: str, told: str, chinese: bool) -> Story:
    outcome = yield Call("note", {"text": text})
    if outcome.failed:
        return trouble(outcome.missing, "note", outcome.reason, chinese)
    return say(told, chinese, text=text)


def _cancel(wish: CancelReminder, chinese: bool) -> Story:
    outcome = yield Call("cron", {"action": "remove", "id": wish.id})
    if outcome.failed:
        return trouble(outcome.missing, "cron", outcome.reason, chinese)
    return say("cancelled", chinese, id=wish.id)


def _fetch(wish: FetchPage, chinese: bool) -> Story:
    outcome = yield Call("web_fetch", {"url": wish.url})
    if outcome.failed:
        return trouble(outcome.missing, f"web_fetch {wish.url}", outcome.reason, chinese)
    page = _PAGE.match(outcome.text)
    url, title, text = (
        (page["url"], page["title"], page["text"]) if page else ("", "", outcome.text)
    )
    head = f"{title} ({url})" if title else url or wish.url
    shown = clipped(text, _SHOWN_OF_A_PAGE, chinese)
    return say("file_says", chinese, path=head, text=shown)


def _show(tool: str, arguments: dict[str, object], told: str, chinese: bool) -> Story:
    """One call, whose result is shown as it is."""
    outcome = yield Call(tool, arguments)
    if outcome.failed:
        return trouble(outcome.missing, tool, outcome.reason, chinese)
    return say(told, chinese, text=clipped(outcome.text, None, chinese))
