"""`read_skill`: the full text of a skill, once it is needed.

An enabled skill is the owner's word, so what is read here is trusted; one that is not enabled in
exactly this form is not shown to a model at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.security.names import printable
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.prompt import missing_text
from nanobot.skills.values import MAIN, Skill
from nanobot.tooling import MAX_RESULT, Arguments, Caller, ToolResult
from nanobot.tooling.policy import OWNER

READ_SKILL = "read_skill"
MOST_TEXT = MAX_RESULT - 2_000
"""Characters in one result; the rest is room for what is said about them."""

_MOST_LISTED = 30


class ReadSkillArguments(Arguments):
    name: str
    file: str = Field(default="", description="Another file of its folder.")
    start_line: int = Field(default=1, ge=1)


@dataclass(frozen=True, slots=True)
class ReadSkill:
    """Texts of the skills that the caller's scope may have."""

    loader: SkillsLoader
    name: str = READ_SKILL
    description: str = "Read a skill's instructions, or a file that they name."
    arguments: type[ReadSkillArguments] = ReadSkillArguments
    effects: bool = False
    parallel: bool = True

    async def __call__(self, arguments: ReadSkillArguments, caller: Caller) -> ToolResult:
        try:
            text = await asyncio.to_thread(self._read, arguments, caller.scope)
        except ToolError as error:  # our own words: they bring nothing foreign in
            told = f"{error}\n{error.hint}" if error.hint else str(error)
            return ToolResult(told, is_error=True, trusted=True)
        return ToolResult(text, trusted=True)

    def _read(self, arguments: ReadSkillArguments, scope: str) -> str:
        skill = self._skill(arguments.name.strip(), scope)
        path = arguments.file.strip().removeprefix(f"{skill.folder}/").removeprefix("./")
        content = self.loader.read(skill, path)
        if b"\0" in content:
            where = f"; it is {skill.folder}/{path}" if skill.folder else ""
            raise ToolError(f"{path} is binary and cannot be read as text{where}")
        shown = _excerpt(content.decode("utf-8", "replace"), arguments.start_line)
        return shown if path else f"{_about(skill)}\n\n{shown}"

    def _skill(self, name: str, scope: str) -> Skill:
        usable = self.loader.in_use(scope)
        for skill in usable:
            if skill.name == name:
                return skill
        asleep = self.loader.find(name)
        if scope == OWNER and asleep is not None:
            raise _not_usable(asleep)
        near = get_close_matches(name.casefold(), [skill.name for skill in usable], 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        known = ", ".join(skill.name for skill in usable) or "none"
        raise ToolError(f"no skill {printable(name[:80])!r}", hint=f"{hint}There are: {known}.")


def _not_usable(skill: Skill) -> ToolError:
    reason = {
        "new": "was not enabled by the owner yet",
        "changed": "was changed since the owner enabled it",
        "disabled": "is turned off",
        "broken": "cannot be read as a skill",
    }[skill.status]
    command = f"nanobot skills {'show' if skill.status == 'broken' else 'enable'} {skill.name}"
    return ToolError(
        f"the skill {skill.name} {reason}, so it is not used",
        hint=f"Tell the owner: `{command}` shows it to them.",
    )


def _about(skill: Skill) -> str:
    """A line in front of the instructions: where the files are, and what is not there."""
    parts = [f"skill {skill.name}"]
    if skill.folder:
        parts.append(f"its folder is {skill.folder}/ in the workspace")
    others = [file.path for file in skill.files if file.path.casefold() != MAIN.casefold()]
    if others:
        more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
        parts.append(f"other files: {', '.join(others[:_MOST_LISTED])}{more}")
    if skill.header.compatibility:
        parts.append(f"made for: {skill.header.compatibility}")
    if lack := missing_text(skill):
        parts.append(lack)
    return f"[{'; '.join(parts)}]"


def _excerpt(text: str, start: int) -> str:
    """The lines from number `start` that fit a result, and how to read on."""
    lines = text.split("\n")
    if start > len(lines):
        raise ToolError(f"it has only {len(lines)} lines")
    shown, room = [], MOST_TEXT
    for line in lines[start - 1 :]:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    if not shown:
        shown = [f"{lines[start - 1][:MOST_TEXT]} [this line is cut here]"]
    last = start - 1 + len(shown)
    if last < len(lines):
        shown.append(f"[lines {start}-{last} of {len(lines)}; read on with start_line={last + 1}]")
    return "\n".join(shown)
