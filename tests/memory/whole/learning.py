"""Models for memory that follow a test's words: they answer turns, consolidate and dream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from nanobot.providers.port import Prompt, Reply
from nanobot.testing.model import Line, calls, says
from tests.memory.consolidation_home import conversation_in, saves, with_lines

_SAID = re.compile(r"(?:consolidate|dream): (.+?)(?:\"|\\n|\n|$)")
_ENTRY = re.compile(r"^\[(\d+)\]", re.MULTILINE)
_UPDATE = re.compile(r"^\[\d+\] (?:add|replace): (.+?)(?: \(instead of: (.+)\))?$", re.MULTILINE)


def assistant(prompt: Prompt) -> Reply:
    """Remember the text after "remember: ", and confirm it."""
    last = prompt.messages[-1]
    if last.role == "tool":
        return says(f"done: {last.text}")
    wish = last.text.partition("remember: ")[2].splitlines()
    return calls("update_memory", add=wish[:1]) if wish else says(f"I hear: {last.text[-40:]}")


def learner(reword: Callable[[str], str] = lambda _: "") -> Callable[[Prompt], Line]:
    """Consolidate each "consolidate: LINE" into memory and dream each "dream: LINE". `reword`
    returns the line that Dream replaces with a new one."""

    def author(prompt: Prompt) -> Line:
        first, last = prompt.messages[0].text, prompt.messages[-1].text
        if first.startswith("# Dream, phase 1: "):
            return _answer_dream(last)
        if first.startswith("# Dream, phase 2: "):
            return _edits(last, reword)
        said = conversation_in(prompt)
        lines = dict.fromkeys(_SAID.findall(said))
        learned = [line for line in lines if f"consolidate: {line}" in said]
        told = "; ".join(f"dream: {line}" for line in lines if f"dream: {line}" in said)
        return saves(f"They spoke of {told or 'this and that'}\n", with_lines(prompt, *learned))

    return author


def _answer_dream(question: str) -> Reply:
    entries = [int(number) for number in _ENTRY.findall(question)] or [0]
    lines = dict.fromkeys(line.strip() for line in re.findall(r"dream: ([^;\n\"]+)", question))
    updates = [{"text": line} for line in lines]
    return says(json.dumps({"memory_updates": updates, "processed_entries": entries}))


def _edits(question: str, reword: Callable[[str], str]) -> Reply:
    updates = [text for text, _ in _UPDATE.findall(question.partition("## Updates")[2])]
    edits = [
        {"old": reword(text), "new": f"- {text}", "section": "" if reword(text) else "## Dreams"}
        for text in updates
    ]
    return says(json.dumps({"edits": edits}))
