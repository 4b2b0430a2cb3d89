"""Skills as data for machines and as text for a chat. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nanobot.security.names import printable, visible
from nanobot.skills.installing import Package
from nanobot.skills.prompt import missing_text
from nanobot.skills.values import Skill, SkillFile

_SHORT = 120


def line_fields(skill: Skill) -> dict[str, object]:
    """What a list shows of a skill."""
    return {
        "name": skill.name,
        "source": skill.source,
        "status": skill.status,
        "description": visible(skill.description),
        "available": skill.available,
        "missing": list(skill.missing),
        "install": list(skill.install),
        "always": skill.always,
        "everyone": skill.everyone,
        "triggers": list(skill.triggers),
        "note": note(skill),
    }


def fields(skill: Skill) -> dict[str, object]:
    """All of a skill, its text included. What cannot be seen in it is written as escapes."""
    return {
        **line_fields(skill),
        "folder": skill.folder,
        "license": visible(skill.header.license),
        "compatibility": visible(skill.header.compatibility),
        "files": file_fields(skill.files),
        "problem": skill.problem,
        "changes": list(skill.changes),
        "warnings": list(skill.warnings),
        "digest": skill.digest,
        "text": visible(skill.body),
    }


def package_fields(package: Package, before: Skill | None) -> dict[str, object]:
    """A skill that would be installed, shown like one that is."""
    header = package.header
    return {
        "name": package.name,
        "description": visible(header.description),
        "license": visible(header.license),
        "compatibility": visible(header.compatibility),
        "always": header.always,
        "triggers": list(header.triggers),
        "files": file_fields(package.contents.files),
        "digest": package.digest,
        "text": visible(package.body),
        "replaces": before is not None,
    }


def file_fields(files: Sequence[SkillFile]) -> list[Mapping[str, object]]:
    """Each file: path, size in bytes, kind."""
    return [{"path": file.path, "size": file.size, "kind": file.kind} for file in files]


def note(skill: Skill) -> str:
    """What there is to say about its status, in a few words; empty for one that is ready."""
    if skill.status == "new":
        return f"not enabled yet: nanobot skills enable {printable(skill.name)}"
    if skill.status == "changed":
        return (
            f"{len(skill.changes)} of its files changed since you enabled it: "
            f"nanobot skills enable {skill.name}"
        )
    if skill.status == "broken":
        return printable(skill.problem)
    return missing_text(skill)


def listing(skills: Sequence[Skill], trouble: str) -> str:
    """All skills, for a chat."""
    lines = [f"⚠️ {trouble}"] if trouble else []
    for skill in skills:
        state = "" if skill.enabled else f" ({skill.status})"
        told = note(skill) or visible(skill.description)
        short = told if len(told) <= _SHORT else f"{told[: _SHORT - 1]}…"
        lines.append(f"{skill.name}{state}: {short}")
    return "\n".join(lines) or "There are no skills."


def details(skill: Skill) -> str:
    """One skill, for a chat."""
    lines = [f"{skill.name} ({skill.source}, {skill.status})", visible(skill.description)]
    if told := note(skill):
        lines.append(told)
    if skill.triggers:
        lines.append(f"Triggers: {', '.join(map(visible, skill.triggers))}")
    lines.append(f"Files: {', '.join(file.path for file in skill.files) or 'none'}")
    lines += [f"Careful: {warning}." for warning in skill.warnings]
    return "\n".join(line for line in lines if line)
