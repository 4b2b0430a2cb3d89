"""The skills of a home, from its settings."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial

from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.security.paths import Root
from nanobot.skills import SkillsLoader, SkillsService
from nanobot.skills.needs import Surroundings

_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""Where commands in the sandbox find programs: a person's own folders are not there."""


@dataclass(frozen=True, slots=True)
class Skills:
    """What reads skills, and what the owner does with them."""

    loader: SkillsLoader
    service: SkillsService


def build_skills(settings: Settings, workspace: Root, clock: Clock) -> Skills:
    """The skills in `workspace` and those that are built in."""
    path = _PROGRAMS if settings.tools.exec.sandbox != "none" else None
    loader = SkillsLoader(
        workspace,
        settings.home / "state" / "skills.json",
        here=Surroundings(
            which=partial(shutil.which, path=path),
            environ=lambda: settings.tools.exec.environment,
        ),
        unwanted=settings.skills.disabled,
    )
    return Skills(loader, SkillsService(loader, clock))
