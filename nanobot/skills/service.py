"""The owner's actions on skills: show, enable, disable and install.

They run in the terminal (on a running gateway or on the files), which can show everything that
decides future behaviour. `/skills` in a chat only lists.

Invariants: enabling names the digest that was shown. If a file has changed since, nothing is
enabled. Installation copies exactly the shown files. An incomplete copy is not enabled, because its
files differ from the record."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.commands import (
    Answer,
    Command,
    CommandCall,
    CommandRegistry,
    in_threads,
    text_argument,
)
from nanobot.errors import NanobotError
from nanobot.security.paths import Place, Root
from nanobot.skills.folder import (
    MAIN,
    MOST_FILES,
    Contents,
    NotASkill,
    Skill,
    compare_files,
    describe_files,
    is_main,
    is_skill_name,
    parse,
    read,
    read_main,
)
from nanobot.skills.loader import EnabledSkill, SkillsLoader
from nanobot.skills.prompt import render_missing
from nanobot.text import escape_invisible, pluralize, printable, shorten

Arguments = Mapping[str, object]
Data = dict[str, object]

MOST_SHOWN = 200_000
"""Maximum characters of a file in the output."""

_SHORT = 120
_MOST_CHANGED = 400


def package_at(path: Path) -> tuple[Skill, Contents]:
    """Return the skill at `path` outside the workspace, and its files. The path of a SKILL.md means
    its folder. Raise `NanobotError`."""
    if path.is_file() and is_main(path.name):
        path = path.parent
    if not path.is_dir():
        raise NanobotError(
            f"{path} is not a folder",
            hint=f"A skill is a folder with a {MAIN}, or an archive of such a folder.",
        )
    try:
        contents = read(Root(path, name="skill").place("."))
        header, body = parse(read_main(contents))
    except NotASkill as error:
        raise NanobotError(f"{path} cannot be used as a skill: {error}") from error
    name = next((name for name in (header.name, path.name) if is_skill_name(name)), "")
    if not name:
        raise NanobotError(
            f"the skill in {path} has no usable name",
            hint="The folder's name or `name:` can contain only letters, digits, dots, -, and _.",
        )
    skill = Skill(name, "workspace", "new", header, body, files=describe_files(contents))
    return skill, contents


def copy_files(skill: Skill, contents: Contents, target: Place) -> None:
    """Write exactly these files to `target`. Raise `NanobotError`."""
    target.root.create()
    for place, entry in list(target.walk_tree(MOST_FILES)):
        if entry.kind == "file" and "/".join(place.names[len(target.names) :]) not in contents:
            place.remove()
    for file in skill.files:
        copied = target.root.place(f"{target.relative}/{file.path}")
        copied.write_bytes(contents[file.path])
        with copied.open(os.O_RDONLY) as descriptor:
            os.fchmod(descriptor, 0o700 if file.kind == "script" else 0o600)


class SkillsService:
    """The operations `skills.…`, and `/skills` in a chat. Impossible requests raise
    `NanobotError`."""

    def __init__(self, loader: SkillsLoader, clock: Clock) -> None:
        self.loader, self._clock = loader, clock
        self._changing = threading.Lock()

    def register(self, registry: CommandRegistry) -> None:
        registry.register(Command("skills", "List the skills", self._run, "[NAME]", "owner"))

    def table(self) -> Mapping[str, Operation]:
        """Return the operations by name (JSON in, JSON out). Each runs in a thread."""
        return in_threads(
            {
                "skills.list": self._list,
                "skills.show": lambda given: render_fields(
                    self._find(text_argument(given, "name"))
                ),
                "skills.file": self._show_file,
                "skills.enable": self._enable,
                "skills.disable": self._disable,
                "skills.package": self._show_package,
                "skills.install": self._install,
            }
        )

    def _find(self, name: str) -> Skill:
        skill = self.loader.find(name)
        if skill is None:
            known = ", ".join(dict.fromkeys(one.name for one in self.loader.list()))
            raise NanobotError(
                f"there is no skill {printable(name)!r}", hint=f"Available skills: {known}."
            )
        return skill

    def _list(self, _: Arguments) -> Data:
        skills = [render_line_fields(skill) for skill in self.loader.list()]
        return {"skills": skills, "trouble": self.loader.state.problem}

    def _show_file(self, arguments: Arguments) -> Data:
        """`name`, `file`: show a file of any skill for review. Invisible characters are escaped."""
        skill = self._find(text_argument(arguments, "name"))
        path = text_argument(arguments, "file")
        try:
            contents = self.loader.contents(skill)
        except NotASkill as error:
            raise NanobotError(f"the skill {skill.name} cannot be read: {error}") from error
        if path not in contents:
            raise NanobotError(
                f"the skill {skill.name} has no file {printable(path)!r}",
                hint=f"The skill contains: {', '.join(contents)}",
            )
        content = contents[path]
        if b"\0" in content:
            raise NanobotError(f"{path} is binary ({len(content):,} bytes)")
        return {
            "file": path,
            "text": escape_invisible(content.decode("utf-8", "replace"))[:MOST_SHOWN],
        }

    def _enable(self, arguments: Arguments) -> Data:
        """`name`, `digest` (as shown): enable this version of the skill. `everyone`: also for
        people other than the owner."""
        with self._changing:
            return self._store_enabled(text_argument(arguments, "name"), arguments)

    def _disable(self, arguments: Arguments) -> Data:
        """`name`: disable the skill."""
        with self._changing:
            name = self._find(text_argument(arguments, "name")).name
            self.loader.change(lambda record: record.disable(name))
            return render_fields(self._find(name))

    def _show_package(self, arguments: Arguments) -> Data:
        """`path`, absolute: show the package and its differences from the skill that it would
        replace."""
        package, _ = package_at(Path(text_argument(arguments, "path")))
        present, against = self._in_workspace(package.name), list[str]()
        if present:
            from difflib import unified_diff

            hashes = {file.path: file.digest for file in present.files}
            old, new = (escape_invisible(one.body).splitlines() for one in (present, package))
            changed = list(unified_diff(old, new, lineterm="", n=1))[2:]
            if len(changed) > _MOST_CHANGED:
                more = len(changed) - _MOST_CHANGED
                changed[_MOST_CHANGED:] = [f"… and {pluralize(more, 'more line')}"]
            against = [*compare_files(hashes, package.files), *changed]
        return {**render_fields(package), "replaces": present is not None, "against": against}

    def _install(self, arguments: Arguments) -> Data:
        """`path`, `digest` (as shown): copy the skill into the workspace and enable it. `replace`
        overwrites another one. `everyone` is as in `_enable`."""
        path = Path(text_argument(arguments, "path"))
        with self._changing:
            package, contents = package_at(path)
            if package.digest != text_argument(arguments, "digest"):
                raise build_stale_error(package.name)
            if not arguments.get("replace") and self._in_workspace(package.name):
                raise NanobotError(
                    f"the workspace already has a skill {package.name}",
                    hint="To replace it, add --replace.",
                )
            copy_files(package, contents, self.loader.place_of(package.name))
            return self._store_enabled(package.name, arguments)

    def _in_workspace(self, name: str) -> Skill | None:
        found = self.loader.find(name)
        return found if found and found.source == "workspace" else None

    def _store_enabled(self, name: str, arguments: Arguments) -> Data:
        skill, enabled = self._find(name), None
        if skill.status == "broken":
            raise NanobotError(f"the skill {name} cannot be used: {skill.problem}")
        if skill.digest != text_argument(arguments, "digest"):
            raise build_stale_error(name)
        if skill.source == "workspace":
            files = {file.path: file.digest for file in skill.files}
            now = self._clock.now().isoformat(timespec="seconds")
            enabled = EnabledSkill(files, arguments.get("everyone") is True, now)
        self.loader.change(lambda record: record.enable(name, enabled))
        skill = self._find(name)
        if not skill.is_enabled:
            raise NanobotError(
                f"the skill {name} stays off because config.yaml lists it in skills.disabled"
            )
        return render_fields(skill)

    async def _run(self, call: CommandCall) -> Answer:
        words = call.arguments.split()
        if not words or words == ["list"]:
            skills = await asyncio.to_thread(self.loader.list)
            return Answer(render_list(skills, self.loader.state.problem))
        if words[0] in {"enable", "disable", "install"}:
            return Answer(
                "Skills can only be enabled and disabled in the terminal: `nanobot skills "
                "enable NAME`."
            )
        return Answer(render_details(await asyncio.to_thread(self._find, words[-1])))


def build_stale_error(name: str) -> NanobotError:
    return NanobotError(
        f"the skill {name} changed while you reviewed it, so it was not enabled",
        hint=f"Review it again with `nanobot skills show {name}`.",
    )


def render_line_fields(skill: Skill) -> Data:
    """Return the fields of a skill in a list, for machines."""
    header, same = skill.header, ("name", "source", "status", "available", "everyone")
    return {
        **{name: getattr(skill, name) for name in same},
        "description": escape_invisible(header.description),
        "missing": list(skill.missing),
        "install": list(header.install[:1]) if skill.missing else [],
        "always": header.always,
        "triggers": list(header.triggers),
        "note": render_note(skill),
    }


def render_fields(skill: Skill) -> Data:
    """Return all fields of a skill with its text. Invisible characters are escaped."""
    return {
        **render_line_fields(skill),
        "folder": skill.folder,
        "license": escape_invisible(skill.header.license),
        "compatibility": escape_invisible(skill.header.compatibility),
        "files": [{"path": one.path, "size": one.size, "kind": one.kind} for one in skill.files],
        "problem": skill.problem,
        "changes": list(skill.changes),
        "warnings": list(skill.warnings),
        "digest": skill.digest,
        "text": escape_invisible(skill.body),
    }


def render_note(skill: Skill) -> str:
    """Return a short remark on its status, or an empty text if it is ready."""
    if skill.status == "new":
        return f"not enabled yet (run `nanobot skills enable {printable(skill.name)}`)"
    if skill.status == "changed":
        return (
            f"{len(skill.changes)} of its files changed since you enabled it (run `nanobot "
            f"skills enable {skill.name}`)"
        )
    if skill.status == "broken":
        return printable(skill.problem)
    return render_missing(skill)


def render_list(skills: Sequence[Skill], problem: str) -> str:
    lines = [f"⚠️ {problem}"] if problem else []
    for skill in skills:
        state = "" if skill.is_enabled else f" ({skill.status})"
        what = shorten(render_note(skill) or escape_invisible(skill.header.description), _SHORT)
        lines.append(f"{skill.name}{state}: {what}")
    return "\n".join(lines) or "There are no skills."


def render_details(skill: Skill) -> str:
    lines = [
        f"{skill.name} ({skill.source}, {skill.status})",
        escape_invisible(skill.header.description),
    ]
    if remark := render_note(skill):
        lines.append(remark)
    if skill.header.triggers:
        lines.append(f"Triggers: {', '.join(map(escape_invisible, skill.header.triggers))}")
    lines.append(f"Files: {', '.join(file.path for file in skill.files) or 'none'}")
    lines += [f"Warning: {warning}." for warning in skill.warnings]
    return "\n".join(line for line in lines if line)
