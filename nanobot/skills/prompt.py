"""The model's view of skills: lines in the system prompt, the names of triggered skills, and
`read_skill` for the full text.

`# Active Skills` holds the skills that are always in the prompt, `# Skills` one line for each of
the others. Both have a token budget: descriptions are shortened evenly to fit, and longer skills
must be read.

A trigger is a word or phrase. It matches whole words, ignoring case and spacing. In scripts without
spaces between words it matches anywhere.

The owner approved each enabled skill, so its text is trusted. A skill that is not enabled in
exactly this form is never shown to a model."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from nanobot.errors import ToolError
from nanobot.providers.port import estimate_tokens
from nanobot.skills.folder import Skill, is_main
from nanobot.skills.loader import SkillsLoader
from nanobot.text import join_some, printable, shorten
from nanobot.tooling import OWNER, Arguments, Tool, ToolResult, TurnContext, line_excerpt
from nanobot.tooling.registry import MAX_RESULT

MOST_NAMED = 3
_MOST_HINT = 120
_MOST_READ = 4_000
"""Characters from the start of a message, which names its topic."""


class Triggers:
    """The triggers of the available skills that are not always in the prompt."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._triggers = [
            (wanted, skill.name)
            for skill in skills
            if skill.available and not skill.header.always
            for trigger in skill.header.triggers
            if (wanted := fold_text(trigger))
        ]

    def match(self, text: str) -> tuple[str, ...]:
        """Return the names of the skills with a trigger in `text`, in the order of the matches, at
        most `MOST_NAMED`."""
        words = fold_text(text[:_MOST_READ])
        found = [
            (start, name)
            for trigger, name in self._triggers
            if trigger in words and (start := find_trigger(trigger, words)) >= 0
        ]
        return tuple(dict.fromkeys(name for _, name in sorted(found)))[:MOST_NAMED]


_UNSPACED = (
    ("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"),  # Thai, Lao, Myanmar, Khmer
    ("\u3040", "\u30ff"), ("\u3400", "\u9fff"),  # kana, Han
    ("\uac00", "\ud7af"),  # Hangul: particles follow its words without a space
    ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip
"""Scripts without spaces between words."""


def fold_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def find_trigger(trigger: str, words: str) -> int:
    """Return the position of a folded trigger as whole words in a folded text, or -1."""
    start = words.find(trigger)
    while start >= 0:
        end = start + len(trigger)
        before, after = words[max(0, start - 1) : start], words[end : end + 1]
        if not is_inside_word(before, trigger[0]) and not is_inside_word(trigger[-1], after):
            break
        start = words.find(trigger, start + 1)
    return start


def is_inside_word(left: str, right: str) -> bool:
    """Check whether both are letters or digits of scripts with spaced words."""
    return all(
        each.isalnum() and not any(first <= each <= last for first, last in _UNSPACED)
        for each in (left, right)
    )


ACTIVE_TOKENS = 6_000
SUMMARY_TOKENS = 2_000

_WIDTHS = (1_024, 400, 200, 100, 50, 0)
_INTRODUCTION = (
    "# Skills\n\nBefore a task of one of these kinds, read its instructions with read_skill. The "
    "owner's own lie in skills/."
)


def render_active(skills: Sequence[Skill]) -> str:
    """Return the full texts of the active skills that fit, or an empty text."""
    texts = [f"## {skill.name}\n\n{skill.body}" for skill in choose_active(skills)]
    return "\n\n".join(["# Active Skills", *texts]) if texts else ""


def render_summary(skills: Sequence[Skill]) -> str:
    """Return a line for each other skill, or an empty text."""
    active = {skill.name for skill in choose_active(skills)}
    rest = [skill for skill in skills if skill.name not in active]
    if not rest:
        return ""
    for width in _WIDTHS:  # all descriptions get the same width
        lines = [render_line(skill, width) for skill in rest]
        section = "\n".join([_INTRODUCTION, "", *lines])
        if estimate_tokens(section) <= SUMMARY_TOKENS:
            break
    return section


def render_missing(skill: Skill) -> str:
    """Return `missing pdftotext; install: apt-get install poppler-utils`, or an empty text."""
    if not skill.missing:
        return ""
    how = shorten(skill.header.install[0], _MOST_HINT) if skill.header.install else ""
    install = f"; install: {how}" if how else ""
    return f"missing {', '.join(skill.missing)}{install}"


def choose_active(skills: Sequence[Skill]) -> list[Skill]:
    room, chosen = ACTIVE_TOKENS, []
    for skill in skills:
        if (
            skill.header.always
            and skill.available
            and (size := estimate_tokens(skill.body)) <= room
        ):
            room -= size  # the first skills by name win
            chosen.append(skill)
    return chosen


def render_line(skill: Skill, width: int) -> str:
    lack = render_missing(skill)
    unavailable = f' (available="false": {lack})' if lack else ""
    described = f": {shorten(skill.header.description, width)}" if width else ""
    return f"- {skill.name}{described}{unavailable}"


READ_SKILL = "read_skill"
MOST_TEXT = MAX_RESULT - 2_000
"""Characters of the text in one result. The rest is for nanobot's notes."""

_MOST_LISTED = 30
_WHY_NOT = {
    "new": "has not been enabled by the owner yet",
    "changed": "has been changed since the owner enabled it",
    "disabled": "is turned off",
    "broken": "cannot be read as a skill",
}


class ReadSkillArguments(Arguments, frozen=True):
    name: str
    file: str = ""
    start_line: Annotated[int, Meta(ge=1)] = 1


class ReadSkill(Tool, Struct, frozen=True):
    loader: SkillsLoader
    name = READ_SKILL
    description = "Read a skill's instructions, or a file of its folder that they name."
    arguments = ReadSkillArguments

    async def __call__(self, arguments: ReadSkillArguments, caller: TurnContext) -> ToolResult:
        try:
            text = await asyncio.to_thread(self._read, arguments, caller.scope)
        except ToolError as error:  # nanobot's own words, so trusted
            message = f"{error}\n{error.hint}" if error.hint else str(error)
            return ToolResult(message, is_error=True, trusted=True)
        return ToolResult(text, trusted=True)

    def _read(self, arguments: ReadSkillArguments, scope: str) -> str:
        skill = find_usable(self.loader, arguments.name.strip(), scope)
        path = arguments.file.strip().removeprefix(f"{skill.folder}/").removeprefix("./")
        content = self.loader.read(skill, path)
        if b"\0" in content:
            where = f"; it is {skill.folder}/{path}" if skill.folder else ""
            raise ToolError(f"{path} is binary and cannot be read as text{where}")
        text = content.decode("utf-8", "replace")
        shown = line_excerpt(text, "it", arguments.start_line, max_text=MOST_TEXT)
        return shown if path else f"{describe_skill(skill)}\n\n{shown}"


def find_usable(loader: SkillsLoader, name: str, scope: str) -> Skill:
    usable = {skill.name: skill for skill in loader.in_use(scope)}
    if name in usable:
        return usable[name]
    asleep = loader.find(name) if scope == OWNER else None
    if asleep is not None:
        command = f"nanobot skills {'show' if asleep.status == 'broken' else 'enable'} {name}"
        raise ToolError(
            f"the skill {name} {_WHY_NOT[asleep.status]}, so it is not used",
            hint=f"Tell the owner to review it with `{command}`.",
        )
    known = ", ".join(usable) or "none"
    raise ToolError(
        f"there is no skill {printable(name[:80])!r}", hint=f"Available skills: {known}."
    )


def describe_skill(skill: Skill) -> str:
    """Return a line above the instructions: the folder, other files, and unmet requirements."""
    parts = [f"skill {skill.name}"]
    if skill.folder:
        parts.append(f"its folder is {skill.folder}/ in the workspace")
    others = [file.path for file in skill.files if not is_main(file.path)]
    if others:
        parts.append(f"other files: {join_some(others, _MOST_LISTED)}")
    if skill.header.compatibility:
        parts.append(f"made for: {skill.header.compatibility}")
    if lack := render_missing(skill):
        parts.append(lack)
    return f"[{'; '.join(parts)}]"
