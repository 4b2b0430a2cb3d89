"""How an answer that needs tools is written: as a story that pauses at each call.

The model keeps nothing between requests. A story is a generator that yields a `Call` and is sent
its `Outcome`; in each request it is told from the beginning, with the outcomes that the prompt
records, until it comes to a call that was not made yet. So the prompt alone decides what is next.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass

from nanobot.providers.offline.prompt import Done

# Not where it is a file's name with what is wrong with it: "done.txt is a folder".
_DONE = re.compile(
    r"(?:(?:ok|done|success|successfully|created|overwrote|wrote|written|edited|replaced|updated|"
    r"noted|appended|added|saved|stored)\b"
    r"(?!\.?\w|[/-]|:? (?:is|has|leads|can|cannot|nothing|no)\b)|\S{1,300} held exactly\b)",
    re.IGNORECASE,
)
_DID = re.compile(
    r"\b(?:wrote|written|edited|replaced|created|updated|noted|appended|added|saved|success\w*)\b",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\b(?:not|no|nothing|nobody|never|only|too|cannot|can't|couldn't|error|fail\w*|refus\w*|"
    r"denied|outside|unable)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\W{0,3}(?:error|failed|failure|interrupted|no tool named|not allowed|refused|denied|"
    r"permission|"
    r"invalid|unknown|cannot|can't|could not|unable|traceback)\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:is a folder|is not a folder|is binary|leads out|is read or written|is too l\w+|"
    r"no file can|can only be|not a plain file|has other names|has only \d+ lines|not found|"
    r"no such|does not exist|there is no|failed unexpectedly|outside|too many to read|cannot be|"
    r"was not|refused|no longer|not permitted|is not in)\b|不存在",
    re.IGNORECASE,
)
_SAYS_SO = {
    "message": re.compile("sent", re.IGNORECASE),
    "cron": re.compile(r"Job \S+ is |- `|Nothing is scheduled|Careful: "),
    "web_fetch": re.compile("URL: "),
    "web_search": re.compile(r"1\. |\[nothing found"),
    "read_skill": re.compile(r"\[skill "),
    "update_memory": re.compile(r"\S+\.md: "),
    "exec": re.compile(r".*\n\[[^\n]*\]\s*$", re.DOTALL),
}
"""How a result begins (a command's: ends) that is no error."""

_MISSING = re.compile(
    r"there is no|no such|not found|does not exist|not exist|不存在", re.IGNORECASE
)
_MORE = re.compile(r"\n?\[lines [\d,]+-[\d,]+ of [\d,]+(?:; read on with start_line=(\d+))?\]\s*$")
_EMPTY = re.compile(r"[\[(][^\n]{0,300}\bempty[\])]\s*$", re.IGNORECASE)
_PAGES = 40


@dataclass(frozen=True, slots=True)
class Call:
    """A tool to run."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call; `missing` names the tool where it is not on offer."""

    text: str
    missing: str = ""
    failed: bool = False

    @property
    def reason(self) -> str:
        """The error, short: its lines are sentences, the last one without a full stop."""
        lines = (" ".join(line.split()).rstrip(".") for line in self.text[:300].splitlines())
        return ". ".join(filter(None, lines))

    @property
    def absent(self) -> bool:
        """Whether the file is not there (and not merely unreadable)."""
        return self.failed and not self.missing and _MISSING.search(self.text[:400]) is not None


Story = Generator[Call, Outcome, str]
Part = Generator[Call, Outcome, Outcome]


def outcome_of(call: Call, text: str) -> Outcome:
    """Tell a tool's error from its success. Results are plain text, so this goes by wording: a
    change is done only where the tool says so, a file's own text is an error only where it is short
    and names the path."""
    if call.name in ("write_file", "edit_file", "note"):
        head = text[:300]
        troubled = _NOT.search(head) or _TROUBLE.search(head)
        done = _DONE.match(head) or (_DID.search(head) and not troubled)
        return Outcome(text, failed=not done)
    if (success := _SAYS_SO.get(call.name)) is not None:
        return Outcome(text, failed=success.match(text) is None)
    short = len(text) <= 800 and text.count("\n") <= 3
    name = str(call.arguments.get("path", "")).rsplit("/", 1)[-1]
    named = bool(name) and name in text and _TROUBLE.search(text) is not None
    return Outcome(text, failed=short and (named or _ERROR.match(text) is not None))


def read_whole(path: str) -> Part:
    """Read a file to its end, page by page."""
    pages: list[str] = []
    start = 1
    for _ in range(_PAGES):
        arguments: dict[str, object] = {"path": path}
        if start > 1:
            arguments["start_line"] = start
        outcome = yield Call("read_file", arguments)
        if outcome.failed:
            return outcome
        more = _MORE.search(outcome.text)
        pages.append(outcome.text[: more.start()] if more else outcome.text)
        if more is None or not more[1] or int(more[1]) <= start:
            text = (
                "\n".join(page.removesuffix("\n") for page in pages) if len(pages) > 1 else pages[0]
            )
            return Outcome("" if _EMPTY.match(text) else text)
        start = int(more[1])
    return Outcome(f"{path} is too long to read", failed=True)


class Replay:
    """The calls made so far in this turn, handed out in order."""

    def __init__(self, done: Iterable[Done], tools: frozenset[str]) -> None:
        self._done = list(done)
        self._tools = tools
        self._next = 0

    def tell(self, story: Story) -> Call | str:
        """The first call of `story` that has no outcome yet, or its last word."""
        try:
            call = next(story)
            while True:
                outcome = self._outcome(call)
                if outcome is None:
                    return call
                call = story.send(outcome)
        except StopIteration as end:
            return str(end.value)

    def _outcome(self, call: Call) -> Outcome | None:
        for index in range(self._next, len(self._done)):
            done = self._done[index]
            if done.name == call.name and dict(done.arguments) == dict(call.arguments):
                self._next = index + 1
                return outcome_of(call, done.result)
        if call.name not in self._tools:
            return Outcome("", missing=call.name, failed=True)
        return None
