"""Requests beyond files and notes: reminders, pages of the web, commands, skills. Pure.

Each wording takes the whole text. An address is fetched only where nothing but a wish to read it
stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from nanobot.providers.offline.intents import (
    CancelReminder,
    FetchPage,
    Intent,
    ListReminders,
    ReadSkill,
    Remind,
    RunCommand,
    SearchWeb,
)

MOST = 2_000
"""Characters; a longer text is none of these."""

_URL = re.compile(r"https?://[^\s<>\"“”「」，。；！？、]+", re.IGNORECASE)
_AROUND = frozenset(
    """fetch get open read load visit browse show me summarize summarise sum up what what's whats is
    does on at in the a page site website webpage url link article say says about please can could
    you this that and tell content contents of from there look check out it for to""".split()  # noqa: SIM905 - a list literal would be unreadable
)
_AROUND_ZH = re.compile(
    r"(?:请|帮我|打开|读取?|一下|看看?|抓取|总结|概括|这个|网页|页面|网站|链接|文章|的|内容|是|什么|说了?|"
    r"里|写了?|讲了?|吗|呢|并|给我)*"
)
_WHEN = r"(?:in|at|on|every|tomorrow|tonight|today|next|daily)\b"

_WORDINGS: tuple[tuple[str, str], ...] = (
    (r"remind\s+me\s+(?:to|that|about|of)\s+(?P<text>.+)", "remind"),
    (rf"remind\s+me\s+(?P<text>{_WHEN}.+)", "remind"),
    (rf"(?P<before>{_WHEN}[^,]{{1,60}}?),?\s+(?:please\s+)?remind\s+me\s+(?P<text>.+)", "remind"),
    (r"set\s+(?:me\s+)?a\s+reminder\s+(?P<text>.+)", "remind"),
    (r"(?:请|帮我)?(?P<before>[^提]{0,30}?)提醒我(?P<text>.+)", "remind"),
    (r"(?:what|which|list|show)(?:\s+me)?(?:\s+all)?(?:\s+of)?(?:\s+my|\s+the)?\s+"
     r"(?:reminders|scheduled\s+jobs|jobs)(?:\s+(?:do\s+i\s+have|are\s+there|are\s+set))?", "list"),
    (r"(?:我有(?:哪些|什么)|列出|查看|看看)(?:我的)?(?:提醒|定时任务)", "list"),
    (r"(?:cancel|remove|delete|stop)\s+(?:the\s+|my\s+)?(?:reminder|job)\s+(?P<text>[\w-]{1,40})",
     "cancel"),
    (r"(?:取消|删除)提醒\s*(?P<text>[\w-]{1,40})", "cancel"),
    (r"(?:search|look)\s+(?:on\s+|in\s+)?(?:the\s+)?(?:web|internet|online)\s+(?:for\s+|about\s+)?"
     r"(?P<text>.+)", "search"),
    (r"(?:search|look)\s+(?:for\s+|up\s+)?(?P<text>.+?)\s+(?:on\s+the\s+(?:web|internet)|online)",
     "search"),
    (r"(?:web\s*search|google)(?:\s+for|:)?\s+(?P<text>.+)", "search"),
    (r"(?:请|帮我)?(?:上网|在?网上)(?:搜索?|查)(?:一下|查)?\s*(?P<text>.+)", "search"),
    (r"(?:run|execute)\s+(?:the\s+)?(?:shell\s+)?(?:command\s*:?\s*)?`(?P<text>[^`]+)`[.!]?",
     "run"),
    (r"(?:run|execute)\s+(?:the\s+|this\s+)?(?:shell\s+)?command\s*:?\s+(?P<text>.+)", "run"),
    (r"(?:run|execute|exec)\s*:\s*(?:```\w*\n)?(?P<text>.+?)(?:\n?```)?", "run"),
    (r"\$\s+(?P<text>.+)", "run"),
    (r"(?:请|帮我)?(?:运行|执行)(?:一下)?(?:命令)?\s*[:：]?\s*`(?P<text>[^`]+)`[.!。！]?", "run"),
    (r"(?:请|帮我)?(?:运行|执行)命令\s*[:：]?\s*(?P<text>.+)", "run"),
    (r"(?:read|show|show\s+me|open|use)\s+(?:the\s+)?skill\s+(?P<text>[\w-]{1,64})", "skill"),
    (r"(?:read|show|show\s+me|open|use)\s+(?:the\s+)?(?P<text>[\w-]{1,64})\s+skill", "skill"),
    (r"(?:读取?|看看?|使用)(?:一下)?技能\s*(?P<text>[\w-]{1,64})", "skill"),
)  # fmt: skip

_STARTS = frozenset(
    """remind in at on every tomorrow tonight today next daily set what which list show cancel
    remove delete stop search look web google run execute exec $ read open use websearch""".split()  # noqa: SIM905 - a list literal would be unreadable
)

_BUILD: dict[str, Callable[[str], Intent]] = {
    "remind": Remind,
    "list": lambda _: ListReminders(),
    "cancel": CancelReminder,
    "search": SearchWeb,
    "run": RunCommand,
    "skill": ReadSkill,
}


def request(text: str) -> Intent | None:
    """What `text` asks for from its beginning to its end; None where that is none of these."""
    text = text.strip()
    if not text or len(text) > MOST:
        return None
    return _page(text) or _worded(text)


def _worded(text: str) -> Intent | None:
    first = re.split(r"[\s:]", text, maxsplit=1)[0].lower()
    if first.isascii() and first not in _STARTS and "提醒我" not in text:
        return None
    for wording, kind in _WORDINGS:
        if match := _compiled(wording, kind == "run").fullmatch(text):
            groups = match.groupdict()
            words = f"{groups.get('before') or ''} {groups.get('text') or ''}".strip()
            return _BUILD[kind](words if kind == "run" else words.rstrip(".!?。！？ "))
    return None


@cache
def _compiled(wording: str, literal: bool) -> re.Pattern[str]:
    # On first use: compiling all of them takes longer than importing everything else.
    end = "" if literal else r"\s*[.!?。！？]*\s*"
    return re.compile(wording + end, re.IGNORECASE | re.DOTALL)


def _page(text: str) -> Intent | None:
    match = _URL.search(text)
    if match is None:
        return None
    url = match[0].rstrip(".,;:!?'\")]}")
    around = f"{text[: match.start()]} {text[match.start() + len(url) :]}"
    words = re.findall(r"[a-z']+", around.lower())
    others = re.sub(r"[\s\W]+|[a-z']+", "", around.lower())
    if all(word in _AROUND for word in words) and _AROUND_ZH.fullmatch(others):
        return FetchPage(url)
    return None
