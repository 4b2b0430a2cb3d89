"""What to do next in a turn: the stories of all wishes, told in order until one needs a tool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from nanobot.providers.offline.conversation import tell_said
from nanobot.providers.offline.errands import errand, only_said
from nanobot.providers.offline.files import work_on_files
from nanobot.providers.offline.intents import (
    Ask,
    CancelReminder,
    Courtesy,
    FetchPage,
    Forget,
    Help,
    Intent,
    ListReminders,
    ReadSkill,
    Recite,
    Remember,
    RememberThat,
    Remind,
    RunCommand,
    SearchWeb,
    Statement,
    TellSaid,
    TellTime,
    Unclear,
    Wish,
)
from nanobot.providers.offline.prompt import READ_AT_MOST, Said, View
from nanobot.providers.offline.remembering import (
    answer,
    forget,
    previous_statements,
    recite,
    remember,
    updates,
)
from nanobot.providers.offline.steps import Call, Replay, Story
from nanobot.providers.offline.texts import say, weekday
from nanobot.providers.offline.understand import MOST_WISHES, understand


def next_step(view: View) -> Call | str:
    """The next tool call, or the reply that ends the turn."""
    replay = Replay(view.done, view.tools)
    replies: list[str] = []
    for story in _stories(view):
        told = replay.tell(story)
        if isinstance(told, Call):
            return told
        if told and told not in replies:
            replies.append(told)
    return _together(replies)


def _together(replies: list[str]) -> str:
    if any("\n" in reply for reply in replies):
        return "\n\n".join(replies)
    return "\n".join(replies)


def _stories(view: View) -> Iterator[Story]:
    left = MOST_WISHES
    for segment in view.segments:
        wishes = [wish for said in segment for wish in understand(said.content)][:left]
        left -= len(wishes)
        if (told := _unasked(segment, wishes)) is not None:
            yield _spoken(told)
            continue
        for wish in _main(wishes):
            yield _story(view, _as_update(view, wish), wishes)
    if left == MOST_WISHES:
        yield _spoken(_unclear(view, chinese=False))
    if any(said.cut for segment in view.segments for said in segment):
        yield _spoken(say("cut", chinese=False, count=READ_AT_MOST))


def _unasked(segment: list[Said], wishes: list[Wish]) -> str | None:
    """What to say where no person has said anything and nothing is to be done."""
    said = segment[0]
    if not said.begun_by:
        return None
    chinese = any(wish.chinese for wish in wishes)
    return only_said(said, [wish.intent for wish in wishes], chinese)


def _main(wishes: list[Wish]) -> list[Wish]:
    """One story stores all facts of a segment; small talk goes unanswered beside anything else."""
    main = [wish for wish in wishes if not isinstance(wish.intent, Courtesy | Unclear | Statement)]
    facts = [wish for wish in main if isinstance(wish.intent, Remember)]
    kept = [wish for wish in main if not any(wish is fact for fact in facts[1:])]
    return kept or wishes[:1]


def _as_update(view: View, wish: Wish) -> Wish:
    """A statement about something that memory has on record changes the record."""
    if isinstance(wish.intent, Statement) and updates(view, wish.intent.text):
        return replace(wish, intent=Remember(wish.intent.text, asked=False))
    return wish


def _story(view: View, wish: Wish, wishes: list[Wish]) -> Story:
    intent, chinese = wish.intent, wish.chinese
    match intent:
        case Remember() | RememberThat():
            facts = _facts(wishes) or [
                *([intent.statement] if isinstance(intent, Remember) else previous_statements(view))
            ]
            story = remember(facts, chinese) if facts else _spoken(say("nothing_said", chinese))
        case Forget():
            story = forget(intent, chinese)
        case Ask():
            story = answer(view, intent, chinese)
        case Recite():
            story = recite(view, intent, chinese)
        case TellTime() | TellSaid() | Help() | Courtesy() | Statement() | Unclear():
            story = _spoken(_without_tools(view, intent, chinese))
        case (
            Remind() | ListReminders() | CancelReminder() | FetchPage() | SearchWeb()
            | RunCommand() | ReadSkill()
        ):  # fmt: skip
            story = errand(intent, view.newest, chinese)
        case _:
            story = work_on_files(intent, chinese)
    return story


def _facts(wishes: list[Wish]) -> list[str]:
    told = [wish.intent for wish in wishes]
    asked = any(isinstance(intent, RememberThat) for intent in told)
    return [
        intent.statement if isinstance(intent, Remember) else intent.text
        for intent in told
        if isinstance(intent, Remember) or (asked and isinstance(intent, Statement))
    ]


def _spoken(text: str) -> Story:
    """A story without tools."""
    yield from ()
    return text


def _without_tools(view: View, intent: Intent, chinese: bool) -> str:
    match intent:
        case TellTime():
            return _time(view.newest, chinese)
        case TellSaid():
            return tell_said(view, intent, chinese)
        case Courtesy(kind):
            return say(kind, chinese)
        case Help():
            return say("help", chinese)
        case Statement():
            return say("heard", chinese)
        case _:
            return _unclear(view, chinese)


def _unclear(view: View, chinese: bool) -> str:
    return say(f"unclear_{view.length // 2 % 3}", chinese)


def _time(said: Said, chinese: bool) -> str:
    if not said.date:
        return say("no_time", chinese)
    day = date.fromisoformat(said.date)
    shown = said.date if chinese else f"{day.day} {day:%B %Y}"
    return say(
        "time", chinese, time=said.time, date=shown, day=weekday(day.weekday(), chinese),
        zone=f" ({said.offset})" if said.offset else "",
    )  # fmt: skip
