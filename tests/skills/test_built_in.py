"""The skills that come with the program."""

from __future__ import annotations

from nanobot.providers.port import estimate_tokens
from nanobot.skills.prompt import Triggers, render_summary
from tests.skills.support import SkillsKit

NAMES = ("cron", "memory", "skill-creator", "summarize", "weather")


def test_a_new_home_has_five_that_work_and_cost_little(kit: SkillsKit) -> None:
    skills = kit.loader.in_use()
    assert tuple(skill.name for skill in skills) == NAMES
    assert all(skill.available and not skill.header.always for skill in skills)
    assert all(estimate_tokens(skill.body) < 700 for skill in skills)
    assert estimate_tokens(render_summary(skills)) <= 200


def test_ordinary_words_call_for_the_right_one(kit: SkillsKit) -> None:
    skills = kit.loader.in_use()
    said = {
        "Remind me to call Ana tomorrow": ("cron",),
        "Wie wird das Wetter in Rom?": ("weather",),
        "Please summarise https://example.org": ("summarize",),
        "do you remember my sister's name?": ("memory",),
        "write a skill for my invoices": ("skill-creator",),
        "Good morning!": (),
    }
    triggers = Triggers(skills)
    assert {text: triggers.match(text) for text in said} == said
