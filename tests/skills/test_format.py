"""SKILL.md as nanobot and other programs write it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.skills.folder import NotASkill, Requirements, parse
from tests.growth import assert_linear
from tests.skills.support import SkillsKit, skill_md


def test_our_own_fields_are_read() -> None:
    header, body = parse(
        "---\n"
        "name: report\n"
        "description: Writes the\n  monthly report.\n"
        "triggers: [report, monthly numbers]\n"
        "always: true\n"
        "requires: {bins: [pdftotext, git], env: [TOKEN]}\n"
        "install: apt-get install poppler-utils\n"
        "---\n"
        "\n# Report\n\n---\n\nDo it.\n"
    )
    assert (header.name, header.description) == ("report", "Writes the monthly report.")
    assert header.triggers == ("report", "monthly numbers")
    assert header.always
    assert header.requires == Requirements(bins=("pdftotext", "git"), env=("TOKEN",))
    assert header.install == ("apt-get install poppler-utils",)
    assert body == "# Report\n\n---\n\nDo it."


AGENT_SKILLS = """\
---
name: form-filling
description: Fills in forms: PDF forms, web forms and "paper" ones. Use when a form is mentioned.
license: Apache-2.0
compatibility: Requires git, jq and access to the internet
metadata:
  author: example-org
  version: 1.0
allowed-tools: Bash(git:*) Bash(jq:*) Read
---
# Forms
"""

OTHER_AGENTS = """\
---
name: tracker
description: >-
  Follows parcels
  and letters.
homepage: https://parcels.example
user-invocable: true
metadata: {"openclaw": {"emoji": "📦", "always": false, "os": ["darwin", "linux"],
  "requires": {"bins": ["parcel"], "anyBins": ["jq", "gron"], "env": ["PARCEL_KEY"]},
  "install": [{"id": "a", "kind": "brew", "formula": "tap/parcel"},
              {"id": "b", "label": "Install parcel-cli (npm)", "bins": ["parcel"]}]}}
---
# Parcels
"""


def test_a_skill_in_the_agent_skills_format_is_read_unchanged() -> None:
    header, body = parse(AGENT_SKILLS)
    assert header.name == "form-filling"
    assert header.description.startswith('Fills in forms: PDF forms, web forms and "paper" ones.')
    assert header.license == "Apache-2.0"
    assert header.compatibility == "Requires git, jq and access to the internet"
    assert body == "# Forms"


@pytest.mark.parametrize("as_text", [False, True])
def test_what_other_agents_keep_under_metadata_is_understood(as_text: bool) -> None:
    text = OTHER_AGENTS
    if as_text:
        text = text.replace("metadata: {", "metadata: '{").replace("}]}}", "}]}}'")
    header, _ = parse(text)
    assert header.description == "Follows parcels and letters."
    assert header.requires == Requirements(
        ("parcel",), ("jq", "gron"), ("PARCEL_KEY",), ("darwin", "linux")
    )
    assert header.install == ("Install parcel-cli (npm)",)
    assert not header.always


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    header, body = parse("\ufeff" + skill_md(body="One.\nTwo.").replace("\n", "\r\n"))
    assert (header.name, body) == ("tea", "One.\nTwo.")


async def test_skill_md_may_be_written_in_small_letters(kit: SkillsKit) -> None:
    await kit.add_enabled("tea", {"skill.md": skill_md()})
    assert "Boil water." in (await kit.read(name="tea")).text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Just Markdown\n", "does not begin with"),
        ("---\nname: tea\n", "does not begin with"),
        ("---\nname: tea\n---\n", "has no description"),
        ("---\n- a\n- b\n---\n", "has no fields"),
        ("---\ndescription: [a\n---\n", "front matter"),
        (f"---\ndescription: {'[' * 9_000}\n---\n", "front matter"),
        (f"---\ndescription: a\nx: {'y' * 40_000}\n---\n", "at most 10,000 characters"),
        ("---\ndescription: !!python/object/apply:os.getcwd []\n---\n", "has no description"),
        ("---\na: &a [x, x]\nb: &b [*a, *a]\ndescription: *b\n---\n", "has no description"),
    ],
)
def test_what_is_no_skill_says_why_and_harms_no_other(
    kit: SkillsKit, text: str, problem: str
) -> None:
    kit.put("odd", text)
    kit.put("tea", skill_md())
    assert kit.skill("odd").status == "broken"
    assert problem in kit.skill("odd").problem
    assert kit.skill("tea").status == "new"


@given(st.text(alphabet=st.sampled_from("-:[]{}&*|>'\"!%#,\n \tab\x00é\ud7ff"), max_size=60))
def test_whatever_stands_in_a_file_it_is_a_skill_or_not(front: str) -> None:
    with suppress(NotASkill):
        header, _ = parse(f"---\n{front}\n---\n")
        assert header.description


@pytest.mark.parametrize("text", ["---", "---\r", "---\na:", "---\n---x\n", "---\na: b\n"])
@pytest.mark.parametrize("piece", ["\n", " ", "\r\n", "\t", "- ", "a:\n", "a: \n", "...x\n"])
def test_a_hostile_file_takes_linear_time(text: str, piece: str) -> None:
    def read(length: int) -> None:
        for end in ("", "\n---\n", "x\n---\n"):
            with suppress(NotASkill):
                parse((text + piece * length)[:length] + end)

    assert_linear(read, 2_000)
