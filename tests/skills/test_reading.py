"""The `read_skill` tool."""

from __future__ import annotations

from tests.skills.support import SkillsKit, skill_md


async def test_the_instructions_come_with_what_else_there_is(kit: SkillsKit) -> None:
    await kit.add_enabled(
        "tea",
        {
            "SKILL.md": skill_md(compatibility="A kitchen"),
            "references/kinds.md": "Green, black.",
            "logo.png": b"\x89PNG\0",
        },
    )
    assert (await kit.read(name="tea")).text == (
        "[skill tea; its folder is skills/tea/ in the workspace; "
        "other files: logo.png, references/kinds.md; made for: A kitchen]\n\nBoil water."
    )
    for path in ("references/kinds.md", "./references/kinds.md", "skills/tea/references/kinds.md"):
        assert (await kit.read(name="tea", file=path)).text == "Green, black."
    picture = await kit.read(name="tea", file="logo.png")
    assert picture.is_error
    assert "skills/tea/logo.png" in picture.text


async def test_nothing_outside_the_folder_is_read(kit: SkillsKit) -> None:
    await kit.add_enabled("tea", skill_md())
    await kit.add_enabled("coffee", skill_md("coffee"))
    for path in ("../coffee/SKILL.md", "/etc/passwd", "../../../state/skills.json", "x\0y"):
        for name in ("tea", "weather"):
            result = await kit.read(name=name, file=path)
            assert result.is_error
            assert "has no such file" in result.text
    assert (await kit.read(name="../skills/tea")).is_error


async def test_a_long_text_is_read_in_pieces_that_fit(kit: SkillsKit) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(400)]
    await kit.add_enabled("tea", skill_md(body="\n".join(lines)))
    first = (await kit.read(name="tea")).text
    assert "is left out" not in first
    *_, last, note = first.splitlines()
    following = int(last.split()[0]) + 2
    assert note.endswith(f"of 400. Continue with start_line={following}]")
    seen = first
    while "Continue with" in seen.splitlines()[-1]:
        start = int(seen.splitlines()[-1].rpartition("=")[2].rstrip("]"))
        seen = (await kit.read(name="tea", start_line=start)).text
    assert seen.splitlines()[-2] == lines[-1]
    assert "only 400 lines" in (await kit.read(name="tea", start_line=401)).text


async def test_an_unknown_name_says_what_there_is_and_brings_nothing_foreign_in(
    kit: SkillsKit,
) -> None:
    result = await kit.read(name="wether")
    assert result.text == (
        "there is no skill 'wether'\n"
        "Available skills: cron, memory, skill-creator, summarize, weather."
    )
    assert result.is_error
    assert result.trusted
