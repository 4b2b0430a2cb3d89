"""What the offline model sees of a prompt: the running turn, what was said before, what is stored.

The conversation is read backwards only as far as needed; everything older is looked at when a
question asks for it. Only messages of the person are ever taken as wishes; what tools returned and
what memory holds is material to quote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from nanobot.messages import TURN_FAILED, TURN_STOPPED
from nanobot.providers.offline.facts import fact_lines
from nanobot.providers.port import Prompt, PromptMessage

MEMORY = "memory/MEMORY.md"

READ_AT_MOST = 16_000
"""Characters of a message that are looked at."""

_HEADER = re.compile(
    r"\[(?:[^\[\]\n]{1,40}, )?(?:[A-Z][a-z]{2} )?(?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d)"
    r"(?: (?P<offset>[+-]\d\d:\d\d))?(?:, [^\[\]\n]{1,200})?\](?:\n|$)"
)
_CHANGED = re.compile(r"\[memory changed: (.*)\](?:\n|$)")
_CHANGE = re.compile(r"(added|removed) \"(.*?)\"(?=; (?:added|removed) \"|; and \d+ more|$)")
_SHORTENED = re.compile(r"…\"|(?<!\w)'|'(?!\w)|; and \d+ more")
_NOT_FROM_PERSON = re.compile(
    r"\[(?:(?:nanobot: |image from )[^\n]{0,400}|nanobot: sent here at [^\n]*)\]$"
)
_UNASKED = re.compile(
    r"\[(?P<by>scheduled job|heartbeat) [^\n]*\]\n(?P<text>.*?)"
    r"(?:\n\n\[Nobody is here to be asked\.[^\n]*)?\Z",
    re.DOTALL,
)
_SPEAKER = re.compile(r"\[from [^\[\]\n]{1,100}\](?:\n|$)")
_FILE = re.compile(
    r"^\[(?:image|audio|voice|video|document)\b[^\[\]\n]*"
    r"(?:, kept as media/|: it could not be fetched: |: not fetched)[^\[\]\n]*\]$",
    re.MULTILINE,
)
STAMP = re.compile(r"^\d\d:\d\d ")
"""The time in front of a daily note."""

_LONG_TERM = "## Long-term Memory"
_TODAY = "## Today's Notes"


@dataclass(frozen=True, slots=True)
class Done:
    """A tool call made earlier, and its result."""

    name: str
    arguments: Mapping[str, object]
    result: str


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the person, without header, speaker and notes on files. `date` is empty
    where headers are off; `shortened` says that its notice does not give every change in full;
    `begun_by` is `job` or `heartbeat` where no person
    said it; `done` is what its turn did."""

    content: str
    date: str = ""
    time: str = ""
    offset: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    cut: bool = False
    shortened: bool = False
    begun_by: str = ""
    done: tuple[Done, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Said:
        """Take header lines off a message; look at the first `READ_AT_MOST` characters."""
        header = _HEADER.match(text)
        start = header.end() if header else 0
        changed = _CHANGED.match(text, start, start + READ_AT_MOST)
        start = changed.end() if changed else start
        changes = _CHANGE.findall(changed[1]) if changed else []
        speaker = _SPEAKER.match(text, start)
        start = speaker.end() if speaker else start
        content = text[start : start + READ_AT_MOST]
        unasked = _UNASKED.match(content)
        if unasked:
            content = unasked["text"]
        return cls(
            "" if _NOT_FROM_PERSON.match(content) else _FILE.sub("", content).strip(),
            header["date"] if header else "",
            header["time"] if header else "",
            (header["offset"] or "") if header else "",
            tuple(fact_lines("\n".join(fact for verb, fact in changes if verb == "added"))),
            tuple(fact_lines("\n".join(fact for verb, fact in changes if verb == "removed"))),
            len(text) > start + READ_AT_MOST,
            changed is not None and _SHORTENED.search(changed[0]) is not None,
            unasked["by"].split()[-1] if unasked else "",
        )


class View:
    """One prompt, read lazily. `segments` are the person's messages of the running turn, grouped by
    when they came: a group that arrived while work was going on stands by itself."""

    def __init__(self, prompt: Prompt, *, may_call: bool = True) -> None:
        self._messages = prompt.messages
        self.tools = (
            frozenset(spec.name for spec in prompt.tools.specs) if may_call else frozenset()
        )
        self._start = _start_of_turn(self._messages)
        self.segments: list[list[Said]] = []
        self.done: list[Done] = []
        self._read_turn()

    def _read_turn(self) -> None:
        calls: dict[str, tuple[str, Mapping[str, object]]] = {}
        together = False
        for message in self._messages[self._start :]:
            if message.role == "user":
                if not together:
                    self.segments.append([])
                self.segments[-1].append(Said.parse(message.text))
            elif message.role == "assistant":
                for call in message.tool_calls:
                    calls[call.id] = (call.name, parsed(call.arguments))
            elif message.tool_call_id in calls:
                self.done.append(Done(*calls[message.tool_call_id], message.text))
            together = message.role == "user"

    @property
    def newest(self) -> Said:
        """The person's newest message."""
        for segment in reversed(self.segments):
            for said in reversed(segment):
                if said.content or said.date:
                    return said
        return Said("")

    @property
    def length(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def before(self) -> Iterator[Said]:
        """What the person said before this turn, newest first."""
        done: list[Done] = []
        results: dict[str, str] = {}
        for message in reversed(self._messages[: self._start]):
            if message.role == "user":
                yield replace(Said.parse(message.text), done=tuple(reversed(done)))
            elif message.role == "tool":
                results[message.tool_call_id] = message.text
            elif message.tool_calls:
                done.extend(
                    Done(call.name, parsed(call.arguments), results[call.id])
                    for call in reversed(message.tool_calls)
                    if call.id in results
                )
            else:
                done = []

    @cached_property
    def _system(self) -> str:
        first = self._messages[0] if self._messages else None
        return first.text if first is not None and first.role == "system" else ""

    @cached_property
    def stored(self) -> list[str]:
        """The facts of the system prompt: the person's profile, long-term memory, today's notes."""
        profile = [line for line in fact_lines(_part(self._system, "## USER.md")) if _filled(line)]
        memory = self._system.partition("\n# Memory\n")[2] or self._system
        if _LONG_TERM not in memory and _TODAY not in memory:
            return profile
        long_term, _, rest = memory.partition(_TODAY)
        lines = fact_lines(_until_next_part(long_term.partition(_LONG_TERM)[2]))
        return profile + lines + self.notes_of(rest)

    @cached_property
    def beside_memory(self) -> list[str]:
        """The facts of the system prompt that are not from long-term memory."""
        profile = [line for line in fact_lines(_part(self._system, "## USER.md")) if _filled(line)]
        return profile + self.notes

    @cached_property
    def notes(self) -> list[str]:
        """Today's notes, as the system prompt has them."""
        return self.notes_of(self._system.partition(_TODAY)[2])

    @staticmethod
    def notes_of(text: str) -> list[str]:
        """The lines of a day's notes."""
        return [STAMP.sub("", line) for line in fact_lines(_until_next_part(text))]


def parsed(arguments: str) -> Mapping[str, object]:
    """A call's arguments as values; empty where they are no JSON object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _start_of_turn(messages: tuple[PromptMessage, ...]) -> int:
    """The turn begins after the last answer in text, or after the end of one that has none."""
    start = len(messages)
    while start > 0:
        message = messages[start - 1]
        if message.role == "system" or (message.role == "assistant" and not message.tool_calls):
            break
        if message.role == "user" and message.text in {TURN_STOPPED, TURN_FAILED}:
            break
        start -= 1
    return start


def _part(system: str, heading: str) -> str:
    return _until_next_part(system.partition(f"{heading}\n")[2])


def _until_next_part(text: str) -> str:
    """Up to the next part of the prompt: a rule followed by a part's own heading."""
    end = re.search(r"\n---\n+(?=# |## [A-Z]+\.md)|\n# (?:Active )?Skills\b", text)
    return text[: end.start()] if end else text


def _filled(line: str) -> bool:
    """Whether a line of a profile says something: "Name: Ana", not "Name:"."""
    return not line.rstrip("*_ ").endswith((":", "："))
