"""What the system prompt says about skills.

`# Active Skills` holds those in full that always stand in the prompt, `# Skills` one line for each
of the others. Both have a budget in tokens: descriptions are shortened evenly until they fit, and
what is too long to stand in the prompt is offered to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.values import Skill
from nanobot.tokens import estimate_tokens

ACTIVE_TOKENS = 6_000
SUMMARY_TOKENS = 2_000

_WIDTHS = (1_024, 400, 200, 100, 50, 0)
_INTRODUCTION = (
    "# Skills\n\nInstructions for tasks. Before such a task, read the skill with read_skill; the "
    "owner's skills lie in skills/."
)


class SkillSections:
    """The sections for one scope; the callables that the system prompt takes."""

    def __init__(self, loader: SkillsLoader, scope: str) -> None:
        self._loader, self._scope = loader, scope

    def active(self) -> str:
        """`# Active Skills`; empty where there are none."""
        return self._section(active_section)

    def summary(self) -> str:
        """`# Skills`; empty where there are none."""
        return self._section(summary_section)

    def _section(self, told: Callable[[Sequence[Skill]], str]) -> str:
        try:
            return told(self._loader.in_use(self._scope))
        except NanobotError as error:
            logger.warning("skills cannot be read: {}", error)
            return ""


def active_section(skills: Sequence[Skill]) -> str:
    """The full texts of those that always stand in the prompt and fit; empty for none."""
    texts = [f"## {skill.name}\n\n{skill.body}" for skill in _active(skills)]
    return "\n\n".join(["# Active Skills", *texts]) if texts else ""


def summary_section(skills: Sequence[Skill]) -> str:
    """A line for each of the others; empty for none."""
    active = {skill.name for skill in _active(skills)}
    rest = [skill for skill in skills if skill.name not in active]
    if not rest:
        return ""
    for width in _WIDTHS:
        lines = [_line(skill, width) for skill in rest]
        section = "\n".join([_INTRODUCTION, "", *lines])
        if estimate_tokens(section) <= SUMMARY_TOKENS:
            break
    return section


def missing_text(skill: Skill) -> str:
    """`missing pdftotext; install: apt-get install poppler-utils`; empty where nothing is."""
    if not skill.missing:
        return ""
    install = f"; install: {'; '.join(skill.install)}" if skill.install else ""
    return f"missing {', '.join(skill.missing)}{install}"


def _active(skills: Sequence[Skill]) -> list[Skill]:
    room, chosen = ACTIVE_TOKENS, []
    for skill in skills:
        if skill.always and skill.available and (size := estimate_tokens(skill.body)) <= room:
            room -= size
            chosen.append(skill)
    return chosen


def _line(skill: Skill, width: int) -> str:
    lack = missing_text(skill)
    unavailable = f' (available="false": {lack})' if lack else ""
    described = f": {_short(skill.description, width)}" if width else ""
    return f"- {skill.name}{described}{unavailable}"


def _short(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return f"{text[: width - 1].rsplit(' ', 1)[0]}…"
