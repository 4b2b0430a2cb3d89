"""Consolidation without a language model: an extract of the conversation, and the facts it stated.

The request holds the current memory and the conversation, one entry a message. Only what the person
said can become a fact; what tools returned is never used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from nanobot.providers.offline.facts import learn
from nanobot.providers.offline.grammar import third_person
from nanobot.providers.offline.intents import Ask, Remember, RememberThat, Statement, TakeNote
from nanobot.providers.offline.understand import understand
from nanobot.providers.offline.words import is_chinese

SAVE_MEMORY = "save_memory"

_CURRENT = "## Current Long-term Memory"
_CONVERSATION = "## Conversation to Process"
_ENTRY = re.compile(
    r"^\[?(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\?)[^\]\s]{0,20}\]?\s+(?P<who>USER|ASSISTANT|TOOL)"
    r"(?:\s*\[tools:(?P<tools>[^\]\n]{0,400})\])?:[ ]?",
    re.MULTILINE,
)
_MOST_FACTS = 40
_MOST_SENTENCES = 5
_LONGEST = 220
_TEMPLATE = """# Long-term Memory

## User Information

## Preferences

## Project Context

## Important Notes
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    when: str
    who: str
    tools: str
    text: str


def consolidate(request: str, now: datetime) -> dict[str, object]:
    """The arguments of `save_memory`: `history_entry`, `memory_update`, `key_facts`."""
    _, _, after = request.partition(_CURRENT)
    current, _, conversation = after.partition(f"\n{_CONVERSATION}")
    memory = current.strip("\n")
    entries = _entries(conversation)
    facts = _facts(entries)
    empty = memory.strip() in ("", "(empty)")
    updated, learned = learn(_TEMPLATE if empty else memory, facts)
    new = [item.fact for item in learned if not item.known]
    return {
        "history_entry": _history(entries, now),
        "memory_update": updated if new else ("" if empty else memory),
        "key_facts": facts,
    }


def _entries(conversation: str) -> list[_Entry]:
    marks = list(_ENTRY.finditer(conversation))
    ends = [*(mark.start() for mark in marks[1:]), len(conversation)][: len(marks)]
    return [
        _Entry(
            "" if mark["when"] == "?" else mark["when"].replace("T", " "),
            mark["who"],
            (mark["tools"] or "").strip(),
            conversation[mark.end() : end].strip(),
        )
        for mark, end in zip(marks, ends, strict=True)
    ]


def _facts(entries: list[_Entry]) -> list[str]:
    found: dict[str, None] = {}
    before: list[str] = []
    for entry in entries:
        if entry.who != "USER":
            continue
        stated: list[str] = []
        for wish in understand(entry.text[:8_000]):
            if isinstance(wish.intent, Remember):
                stated.append(wish.intent.statement)
            elif isinstance(wish.intent, RememberThat):
                stated.extend(before)
            elif isinstance(wish.intent, Statement):
                before = [wish.intent.text]
        for statement in stated:
            found[dated(third_person(statement), entry.when)] = None
            before = []
        if len(found) >= _MOST_FACTS:
            break
    return list(found)[:_MOST_FACTS]


def dated(fact: str, when: str) -> str:
    """`fact` with "tomorrow" and its like as the date that was meant."""
    if not when:
        return fact
    day = date.fromisoformat(when[:10])
    for word, days in (("tomorrow", 1), ("yesterday", -1), ("today", 0), ("tonight", 0)):
        fact = re.sub(rf"\b{word}\b", f"on {day + timedelta(days)}", fact, flags=re.IGNORECASE)
    for word, days in (("后天", 2), ("明天", 1), ("昨天", -1), ("今天", 0)):
        fact = fact.replace(word, f"{day + timedelta(days)}")
    return fact


def _history(entries: list[_Entry], now: datetime) -> str:
    last = next((entry.when for entry in reversed(entries) if entry.when), f"{now:%Y-%m-%d %H:%M}")
    people = [entry for entry in entries if entry.who == "USER" and entry.text]
    chinese = is_chinese(" ".join(entry.text[:200] for entry in people[:20]))
    said = [_said(entry, chinese) for entry in people]
    chosen = _chosen(said)
    tools = list(
        dict.fromkeys(name.strip() for e in entries for name in e.tools.split(",") if name.strip())
    )
    if tools:
        names = ", ".join(tools[:8])
        chosen.append(f"用到的工具：{names}。" if chinese else f"Tools used: {names}.")
    if len(chosen) < 2:
        replies = [entry for entry in entries if entry.who == "ASSISTANT" and entry.text]
        chosen += [
            _quoted(entry.text, "nanobot 回答" if chinese else "nanobot answered", chinese)
            for entry in replies[-1:]
        ]
    if len(chosen) < 2:
        count = len(entries)
        chosen.append(
            f"这段对话共有 {count} 条消息。"
            if chinese
            else f"The conversation had {count} messages."
        )
    return f"[{last}] " + ("" if chinese else " ").join(chosen[:_MOST_SENTENCES])


def _chosen(said: list[tuple[int, str]]) -> list[str]:
    """The sentences that tell most, in the order in which they were said."""
    room = _MOST_SENTENCES - 1
    ranked = sorted(range(len(said)), key=lambda number: (-said[number][0], number))[:room]
    return list(dict.fromkeys(said[number][1] for number in sorted(ranked)))


def _said(entry: _Entry, chinese: bool) -> tuple[int, str]:
    """How much a message tells, and the sentence about it."""
    intents = [wish.intent for wish in understand(entry.text[:8_000])]
    facts = [intent.statement for intent in intents if isinstance(intent, Remember)]
    if facts:
        joined = "; ".join(dated(third_person(fact), entry.when) for fact in facts)
        return 3, _sentence(joined, chinese)
    details = 1 if re.search(r"\d|[A-Z][a-z]+ [A-Z]|/|\.\w", entry.text) else 0
    if any(isinstance(intent, Ask) for intent in intents):
        return details, _quoted(entry.text, "用户问" if chinese else "The user asked", chinese)
    if any(isinstance(intent, Statement | TakeNote) for intent in intents):
        details += 1
    return details, _quoted(entry.text, "用户说" if chinese else "The user said", chinese)


def _quoted(text: str, who: str, chinese: bool) -> str:
    short = _one_sentence(text)
    return f"{who}：“{short}”。" if chinese else f"{who}: “{short}”."


def _sentence(text: str, chinese: bool) -> str:
    return _one_sentence(text) + ("。" if chinese else ".")


def _one_sentence(text: str) -> str:
    """`text` on one line and without sentence ends inside, cut where it is long."""
    line = re.sub(r"\s+", " ", text[: 4 * _LONGEST]).strip()
    line = re.sub(r"[.!?]+\s+(?=\S)", "; ", line)
    line = re.sub(r"[。！？]+(?=.)", "；", line).rstrip(".!?。！？;； ")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1].rstrip()}…"
